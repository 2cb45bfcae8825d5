# docker build -t convtune . && docker run --rm -v convtune:/root convtune tune alexnet_conv1 (records stay in the volume)
FROM debian:12-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends \
    g++ python3-venv libcli11-dev libfmt-dev libhwy-dev nlohmann-json3-dev
RUN python3 -m venv /convtune
COPY . /source
RUN /convtune/bin/pip install --no-cache-dir '/source[numpy,onednn,onnx]'
FROM debian:12-slim
RUN apt-get update && apt-get install -y --no-install-recommends python3 && rm -rf /var/lib/apt/lists/*
COPY --from=build /convtune /convtune
ENV VIRTUAL_ENV=/convtune PATH=/convtune/bin:$PATH
ENTRYPOINT ["convtune"]
