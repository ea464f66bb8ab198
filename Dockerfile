# The demo on a plain Debian 12. Results are in /tpuboard/out/demo:
#   docker build -t tpuboard .
#   docker run --rm -v "$PWD/out:/tpuboard/out" tpuboard                    # the convnet; five minutes on two cores
#   docker run --rm -v "$PWD/out:/tpuboard/out" tpuboard --model mlp        # a perceptron; seconds
FROM debian:12
WORKDIR /tpuboard
COPY sim_scripts/setup sim_scripts/setup
RUN sim_scripts/setup && rm -rf /var/lib/apt/lists/*
COPY . .
RUN cmake --workflow --preset demo
ENTRYPOINT ["sim_scripts/demo", "--build-dir", "build/release"]
