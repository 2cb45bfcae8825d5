"""A recipe for Conan 2: `conan create .`, in this folder. What convtune is built with are the system's packages, or the pinned
headers of cmake/need.cmake; a program finds the package by find_package(convtune), as after `make install`."""

import re
from pathlib import Path

from conan import ConanFile
from conan.tools.cmake import CMake, CMakeToolchain


class Convtune(ConanFile):
    name = "convtune"
    description = "Convolutions as fast as the hardware allows"
    license = "Apache-2.0"
    settings = "os", "arch", "compiler", "build_type"
    exports_sources = ("CMakeLists.txt", "LICENSE", "THIRD_PARTY_NOTICES", "cases/*", "cli/*", "cmake/*", "include/*",
                       "records/*", "src/*")

    def set_version(self):
        project = (Path(self.recipe_folder) / "CMakeLists.txt").read_text()
        self.version = re.search(r"VERSION ([\d.]+)\n", project)[1]

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables["convtune_BUILD_TESTS"] = False
        toolchain.cache_variables["CMAKE_UNITY_BUILD"] = True
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()

    def package_info(self):
        self.cpp_info.set_property("cmake_find_mode", "none")  # its own files, for C and for C++
        self.cpp_info.builddirs = ["lib/cmake/convtune"]
