# Sluice in a container: one image for every role. Built in two steps, so that compilers, the page's sources and the
# tests stay behind. It runs as an unprivileged user, keeps its data in /data and has a health check.
#
#   docker build -t sluice .
#   docker run -p 8080:8080 -v sluice-data:/data sluice

FROM node:26-slim AS build
WORKDIR /build
COPY package.json package-lock.json ./
COPY dashboard/package.json dashboard/
COPY sdk/package.json sdk/
# The page and the SDK are built by "prepare", which needs the sources: scripts wait until they are there.
RUN npm ci --ignore-scripts
COPY . .
RUN npm run build:dashboard && npm run build:sdk && npm run build && npm prune --omit=dev --ignore-scripts

FROM node:26-slim
ENV NODE_ENV=production HOST=0.0.0.0 PORT=8080 SLUICE_DATA=/data
WORKDIR /app
COPY --from=build /build/package.json /build/LICENSE ./
COPY --from=build /build/bin bin
COPY --from=build /build/node_modules node_modules
COPY --from=build /build/dist dist
COPY --from=build /build/dashboard/dist dashboard/dist
COPY --from=build /build/sdk/dist/sluice.js sdk/dist/sluice.js
# A volume that is mounted here takes over the owner of the folder.
RUN install -d -o node -g node -m 0700 /data
USER node
VOLUME /data
EXPOSE 8080
# Liveness, not readiness: without disk space or brokers the server responds 503, and recovers without a restart.
HEALTHCHECK --interval=10s --timeout=3s --start-period=15s --retries=3 \
  CMD ["node", "-e", "fetch(`http://127.0.0.1:${process.env.PORT}/livez`).then((response) => process.exit(response.ok ? 0 : 1), () => process.exit(1))"]
# Without npm in between, signals arrive. Give it 40 s to stop (SLUICE_DRAIN and SLUICE_SHUTDOWN): docker stop --time 40.
STOPSIGNAL SIGTERM
ENTRYPOINT ["node", "bin/sluice.js"]
CMD ["serve"]
