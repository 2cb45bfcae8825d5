# Thin doors over scripts/setup and the CMake presets (CMakePresets.json). `make` alone lists them.
.PHONY: help setup nvrtc python tune install wheel test kernels arm asan tsan check

PREFIX ?= /usr/local

help:
	@echo 'make setup   install what is missing (Debian packages; nothing is done when all is there)'
	@echo 'make tune    setup, build, tune AlexNet conv1 on the best device here and print the table'
	@echo 'make install setup, build, install library, headers and command (PREFIX=$(PREFIX))'
	@echo 'make wheel   a wheel for pip in dist/, tested in an empty environment (a compiler is all that it needs)'
	@echo 'make test    setup, build, run every test'
	@echo 'make kernels every GPU kernel executed without a GPU, on all its problems in every mode'
	@echo 'make arm     the CPU kernels for 64-bit Arm, under an emulator'
	@echo 'make asan    every test under AddressSanitizer and UndefinedBehaviorSanitizer'
	@echo 'make tsan    every test under ThreadSanitizer'
	@echo 'make check   formatting, lengths of files, the include rules and clang-tidy'

setup:
	scripts/setup

nvrtc: setup
	scripts/setup_nvrtc

python: setup
	scripts/setup_python

tune: python
	cmake --preset release
	cmake --build --preset release --target convtune_cli
	VIRTUAL_ENV=$${VIRTUAL_ENV:-$(CURDIR)/.venv} build/release/cli/convtune tune alexnet_conv1

# What is installed, and not the tests.
install: setup
	cmake --preset release
	cmake --build --preset release --target convtune convtune_c convtune_torch convtune_cli
	cmake --install build/release --prefix $(PREFIX)

wheel:
	scripts/build_wheel

test: nvrtc python
	cmake --preset release
	cmake --build --preset release
	ctest --preset release --parallel $$(nproc)

# `make test` executes some of each; this takes hours of a processor.
kernels: setup
	cmake --preset release
	cmake --build --preset release --target host_gpu_tests host_kernel
	n=$$(nproc); seq 0 $$((n - 1)) | xargs -P $$n -I PART env CONVTUNE_HOST_GPU_ALL=1 CONVTUNE_HOST_GPU_PART=PART/$$n \
	  build/release/tests/host_gpu_tests
	tests/host_gpu/mutants.py build/release/tests/host_kernel

arm: setup
	mkdir -p build
	tests/aarch64/run.sh build/aarch64

asan tsan: nvrtc python
	cmake --preset $@
	cmake --build --preset $@
	ctest --preset $@ --parallel $$(nproc)

check: setup
	scripts/check
