# syntax=docker/dockerfile:1

# Build it with Docker, or with another builder that keeps HEALTHCHECK: buildah build --format docker. `make image` builds
# and checks it without an engine and without a registry.
# --build-arg SOURCE_COMMIT=$(git rev-parse --short=12 HEAD) adds the commit to --version. To get the same last layers for
# the same commit and packages, set the date of their files: with buildah's --timestamp, or with BuildKit's
# SOURCE_DATE_EPOCH in the environment and --output type=image,rewrite-timestamp=true.

# Debian 12, so that the executable is linked with the libraries that are copied.
ARG SWIFT_IMAGE=swift:6.3-bookworm

FROM ${SWIFT_IMAGE} AS build
# Versions are not pinned, so that security updates are installed.
# hadolint ignore=DL3008
RUN apt-get update \
  && apt-get install -y --no-install-recommends \
    binutils ca-certificates gcc libavif-dev libbrotli-dev libc6-dev libcurl4-openssl-dev libde265-dev libjpeg-dev \
    libjxl-dev liblcms2-dev libmicrohttpd-dev libpng-dev libpq-dev libseccomp-dev libsqlite3-dev libssl-dev \
    libwebp-dev libyaml-dev patchelf pkg-config zlib1g-dev \
  && rm -rf /var/lib/apt/lists/*
WORKDIR /src
# Tests and benchmarks are not copied, so that a change of them does not rebuild anything.
ENV WITHOUT_TESTS=1
# The SHA-256 of an executable that is already built and mounted at /prebuilt/imagefetch (`make image EXECUTABLE=FILE`).
# The image then uses it, and nothing is compiled.
ARG EXECUTABLE=
# The dependencies rarely change, so they have their own layer.
COPY Package.swift ./
RUN [ -n "$EXECUTABLE" ] || swift package resolve --scratch-path .build-dist
COPY openapi.yaml ./
COPY Sources Sources
COPY deploy/dist/build deploy/dist/no-icu-data.c deploy/dist/root deploy/dist/
ARG SOURCE_COMMIT=
# Build the executable (static Swift libraries, stripped), then collect the files that it needs to run, and the license.
RUN if [ -n "$EXECUTABLE" ]; then \
    [ "$(sha256sum </prebuilt/imagefetch)" = "$EXECUTABLE  -" ] && install -m 755 /prebuilt/imagefetch /tmp/imagefetch; \
  else deploy/dist/build /tmp/imagefetch; fi \
  && deploy/dist/root /tmp/imagefetch /runtime \
  && rm -rf .build-dist /tmp/imagefetch && mkdir /data
COPY LICENSE /runtime/usr/share/doc/imagefetch/LICENSE

FROM scratch
COPY --from=build /runtime /
# A new volume gets the owner of this folder.
COPY --from=build --chown=10001:10001 /data /var/lib/imagefetch

# Loopback can't be reached from outside a container, so the service listens on every address. It then
# refuses to start without tokens (auth.tokens in a mounted file, see deploy/compose.yaml), unless
# IMAGEFETCH_AUTH_DISABLED=true is set.
ENV PATH=/usr/local/bin \
    IMAGEFETCH_SERVER_HOST=0.0.0.0 \
    IMAGEFETCH_SERVER_PORT=8080 \
    IMAGEFETCH_STORAGE_PATH=/var/lib/imagefetch

# A number, so that Kubernetes can check that it is not root.
USER 10001:10001
WORKDIR /var/lib/imagefetch
# The only folder that is written. The root file system may be read-only.
VOLUME /var/lib/imagefetch
EXPOSE 8080
STOPSIGNAL SIGTERM
# The image has no shell and no curl, so the executable itself requests /livez.
HEALTHCHECK --interval=15s --timeout=3s --start-period=10s --retries=3 \
  CMD ["/usr/local/bin/imagefetch", "health"]
ENTRYPOINT ["/usr/local/bin/imagefetch"]
CMD ["serve"]

LABEL org.opencontainers.image.title="imagefetch" \
      org.opencontainers.image.description="Fetches images from untrusted URLs as durable jobs" \
      org.opencontainers.image.licenses="Apache-2.0"
