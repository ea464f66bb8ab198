# tpuboard on a plain Debian 12, in two stages: the first one builds the Debian package, the second one has that package
# and the shared libraries that it needs. Results are in /out:
#   docker build -t tpuboard .
#   docker run --rm -v "$PWD/out:/out" tpuboard                             # a perceptron; half a minute
#   docker run --rm -v "$PWD/out:/out" tpuboard demo --model convnet --out /out   # five minutes on two cores
FROM debian:12 AS build
WORKDIR /tpuboard
COPY sim_scripts/setup sim_scripts/setup
RUN sim_scripts/setup && rm -rf /var/lib/apt/lists/*
COPY . .
RUN python3 sim_scripts/fetch_mnist.py --out out/data/mnist && cmake --workflow --preset release \
    && cpack -G DEB --config build/release/CPackConfig.cmake -B dist

FROM debian:12-slim
COPY --from=build /tpuboard/dist/tpuboard_*.deb /tmp/
RUN apt-get update && apt-get install -y --no-install-recommends /tmp/tpuboard_*.deb \
    && rm -rf /var/lib/apt/lists/* /tmp/tpuboard_*.deb
WORKDIR /out
ENTRYPOINT ["tpuboard"]
CMD ["demo", "--out", "/out"]
