FROM golang:1.26-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags="-s -w" -o /weir ./cmd/weir

# One static binary, CA certificates, and no shell.
FROM gcr.io/distroless/static-debian12:nonroot
COPY --from=build /weir /usr/local/bin/weir
USER nonroot:nonroot
WORKDIR /etc/weir
ENTRYPOINT ["/usr/local/bin/weir"]
CMD ["run"]
