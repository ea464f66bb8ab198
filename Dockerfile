# tpuboard on a plain Debian 12, in two stages: the first one builds the Debian package, the second one has that package
# and the shared libraries that it needs. `RUN --mount` needs Docker 23, Buildah or Podman. Results are in /out:
#   docker build -t tpuboard .
#   docker run --rm -v "$PWD/out:/out" tpuboard                             # a perceptron; half a minute
#   docker run --rm -v "$PWD/out:/out" tpuboard demo --model convnet --out /out   # five minutes on two cores
FROM debian:12 AS build
WORKDIR /tpuboard
COPY sim_scripts/setup sim_scripts/setup
RUN sim_scripts/setup && rm -rf /var/lib/apt/lists/*
COPY . .
RUN python3 sim_scripts/fetch_mnist.py --out out/data/mnist && cmake --workflow --preset release \
    && cpack -G DEB --config build/release/CPackConfig.cmake -B dist && cd dist && sha256sum *.deb >SHA256SUMS

FROM debian:12-slim
# Buildah does not compare what is mounted when it takes a layer of an earlier build: this names the package.
COPY --from=build /tpuboard/dist/SHA256SUMS /usr/share/doc/tpuboard/
# A mount, since a copied package would stay in a layer of the image.
RUN --mount=type=bind,from=build,source=/tpuboard/dist,target=/dist apt-get update \
    && apt-get install -y --no-install-recommends /dist/tpuboard_*.deb && rm -rf /var/lib/apt/lists/*
# Debian's default locale is ASCII.
ENV LANG=C.UTF-8
WORKDIR /out
ENTRYPOINT ["tpuboard"]
CMD ["demo", "--out", "/out"]
