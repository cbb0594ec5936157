internal import Foundation
internal import Glibc

/// OpenStack Swift with its S3 middleware, as packaged by Debian, on 127.0.0.1. Unlike ``ObjectStore`` it verifies the body's
/// digest and the region. It has four processes, which end with this one. The start takes about ten seconds.
package struct OpenStackSwift: Sendable {
  /// The port that it listens on.
  package let port: Int
  /// The only access key that it accepts.
  package static let accessKey = "test:tester"
  /// The secret key.
  package static let secretKey = "SKTEST"

  /// The server's URL without a path.
  package var endpoint: String { "http://127.0.0.1:\(port)" }

  /// Whether it is installed on this machine.
  package static var isInstalled: Bool {
    FileManager.default.isExecutableFile(atPath: "/usr/bin/swift-proxy-server")
  }

  /// Starts a server.
  package init() async throws {
    port = ObjectStore.freePorts(4)
    let folder = FileManager.default.temporaryDirectory.appending(
      path: "openstack-\(UUID().uuidString)")
    _ = try ChildProcess(
      ["/bin/sh", "-c", Self.script, "sh", folder.path, "\(port)"],
      environment: ProcessInfo.processInfo.environment.merging(["OWNER": "\(getpid())"]) { $1 },
      input: .null, output: .null, errors: .null)
    guard await ObjectStore.isReady(endpoint, saying: 404) else {
      let log = folder.appending(path: "proxy.log").path
      let said = (try? String(contentsOfFile: log, encoding: .utf8)) ?? ""
      throw ObjectStore.Failure(description: "it does not start: \(said.suffix(2_000))")
    }
  }

  private static let script = #"""
    set -eu
    d=$1 port=$2 me=$(id -un)
    mkdir -p "$d/disk/d1" "$d/etc"; cd "$d/etc"
    printf '[swift-hash]\nswift_hash_path_suffix = throwaway\n' >swift.conf
    n=1
    for t in account container object; do
      p=$((port + n)); n=$((n + 1))
      cat >$t.conf <<X
    [DEFAULT]
    bind_ip=127.0.0.1
    bind_port=$p
    user=$me
    swift_dir=$d/etc
    devices=$d/disk
    mount_check=false
    workers=0
    log_level=WARNING
    log_address=/dev/null
    disable_fallocate=true
    [pipeline:main]
    pipeline=$t-server
    [app:$t-server]
    use=egg:swift#$t
    X
      swift-ring-builder $t.builder create 6 1 0
      swift-ring-builder $t.builder add r1z1-127.0.0.1:$p/d1 1
      swift-ring-builder $t.builder rebalance || true
    done
    cat >proxy.conf <<X
    [DEFAULT]
    bind_ip=127.0.0.1
    bind_port=$port
    user=$me
    swift_dir=$d/etc
    workers=0
    log_level=WARNING
    log_address=/dev/null
    [pipeline:main]
    pipeline=catch_errors cache s3api tempauth slo dlo versioned_writes proxy-server
    [app:proxy-server]
    use=egg:swift#proxy
    account_autocreate=true
    allow_account_management=true
    node_timeout=10
    [filter:cache]
    use=egg:swift#memcache
    memcache_servers=127.0.0.1:1
    [filter:catch_errors]
    use=egg:swift#catch_errors
    [filter:s3api]
    use=egg:swift#s3api
    location=us-east-1
    s3_acl=false
    check_bucket_owner=false
    allow_multipart_uploads=true
    [filter:tempauth]
    use=egg:swift#tempauth
    user_test_tester=SKTEST .admin
    [filter:slo]
    use=egg:swift#slo
    [filter:dlo]
    use=egg:swift#dlo
    [filter:versioned_writes]
    use=egg:swift#versioned_writes
    allow_versioned_writes=true
    X
    servers=""
    for t in account container object proxy; do
      swift-$t-server "$d/etc/$t.conf" >"$d/$t.log" 2>&1 &
      servers="$servers $!"
    done
    while kill -0 "$OWNER" 2>/dev/null; do sleep 1; done
    kill -9 $servers 2>/dev/null || true
    rm -rf "$d"
    """#
}
