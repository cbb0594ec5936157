# syntax=docker/dockerfile:1

# By Docker, or by another builder that keeps HEALTHCHECK: buildah build --format docker. `make image` builds it without an
# engine and without a registry, and tries it.
# --build-arg SOURCE_COMMIT=$(git rev-parse --short=12 HEAD) has --version tell the commit. What dates the files of the last
# layers has the same commit and packages give the same ones: buildah's --timestamp, or BuildKit's SOURCE_DATE_EPOCH in the
# environment with --output type=image,rewrite-timestamp=true.

# Debian 12, so that the libraries linked are the libraries copied.
ARG SWIFT_IMAGE=swift:6.3-bookworm

FROM ${SWIFT_IMAGE} AS build
# Security updates matter more here than the same versions each time.
# hadolint ignore=DL3008
RUN apt-get update \
  && apt-get install -y --no-install-recommends \
    binutils ca-certificates gcc libavif-dev libbrotli-dev libc6-dev libcurl4-openssl-dev libde265-dev libjpeg-dev \
    libjxl-dev liblcms2-dev libmicrohttpd-dev libpng-dev libpq-dev libseccomp-dev libsqlite3-dev libssl-dev \
    libwebp-dev libyaml-dev patchelf pkg-config zlib1g-dev \
  && rm -rf /var/lib/apt/lists/*
WORKDIR /src
# Tests and benchmarks are not here: one of them that changes has nothing built anew.
ENV WITHOUT_TESTS=1
# The SHA-256 of an executable that was built before, mounted at /prebuilt/imagefetch (`make image EXECUTABLE=FILE`). The
# image takes it, and nothing is compiled.
ARG EXECUTABLE=
# The dependencies change seldom: a layer of their own.
COPY Package.swift ./
RUN [ -n "$EXECUTABLE" ] || swift package resolve --scratch-path .build-dist
COPY openapi.yaml ./
COPY Sources Sources
COPY deploy/dist/build deploy/dist/no-icu-data.c deploy/dist/root deploy/dist/
ARG SOURCE_COMMIT=
# Static, stripped, and without what nothing here asks for; then what it needs to run, and the licence.
RUN if [ -n "$EXECUTABLE" ]; then \
    [ "$(sha256sum </prebuilt/imagefetch)" = "$EXECUTABLE  -" ] && install -m 755 /prebuilt/imagefetch /tmp/imagefetch; \
  else deploy/dist/build /tmp/imagefetch; fi \
  && deploy/dist/root /tmp/imagefetch /runtime \
  && rm -rf .build-dist /tmp/imagefetch && mkdir /data
COPY LICENSE /runtime/usr/share/doc/imagefetch/LICENSE

FROM scratch
COPY --from=build /runtime /
# A new volume takes its owner over.
COPY --from=build --chown=10001:10001 /data /var/lib/imagefetch

# In a container loopback reaches nobody, so this listens on every address; and there the service
# refuses to start until it is given tokens (auth.tokens in a mounted file, see deploy/compose.yaml)
# or is openly told to have none: IMAGEFETCH_AUTH_DISABLED=true.
ENV PATH=/usr/local/bin \
    IMAGEFETCH_SERVER_HOST=0.0.0.0 \
    IMAGEFETCH_SERVER_PORT=8080 \
    IMAGEFETCH_STORAGE_PATH=/var/lib/imagefetch

# A number, so that Kubernetes can see that it is not root.
USER 10001:10001
WORKDIR /var/lib/imagefetch
# All that is written; the root file system may be read-only.
VOLUME /var/lib/imagefetch
EXPOSE 8080
STOPSIGNAL SIGTERM
# No shell and no curl: the service asks its own /livez.
HEALTHCHECK --interval=15s --timeout=3s --start-period=10s --retries=3 \
  CMD ["/usr/local/bin/imagefetch", "health"]
ENTRYPOINT ["/usr/local/bin/imagefetch"]
CMD ["serve"]

LABEL org.opencontainers.image.title="imagefetch" \
      org.opencontainers.image.description="Fetches images from untrusted URLs as durable jobs" \
      org.opencontainers.image.licenses="Apache-2.0"
