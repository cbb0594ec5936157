internal import Foundation
internal import Glibc

/// A real S3 server that verifies signatures (SeaweedFS) on 127.0.0.1. All tests of a process share it. It ends with the
/// process.
package struct ObjectStore: Sendable {
  /// Why the server could not be started.
  package struct Failure: Error, CustomStringConvertible {
    /// The end of its output.
    package let description: String
  }

  /// The port that it listens on.
  package let port: Int
  /// The only access key that it accepts.
  package static let accessKey = "AKTEST"
  /// The secret key, with characters that must be escaped in a URL.
  package static let secretKey = "SKTEST/+secret"

  /// The server's URL without a path.
  package var endpoint: String { "http://127.0.0.1:\(port)" }

  /// The process's server. The first use starts it, which takes some seconds.
  package static func shared() async throws -> ObjectStore { try await starting.value }

  private static let starting = Task { try await start() }

  private static func start() async throws -> ObjectStore {
    let root = URL(filePath: #filePath).appending(path: "../../..").standardized
    let weed = root.appending(path: ".build-s3/bin/weed").path
    guard FileManager.default.isExecutableFile(atPath: weed) else {
      throw Failure(description: "\(weed) is missing: make .build-s3/installed")
    }
    var told = ""
    for _ in 0..<3 {
      let folder = FileManager.default.temporaryDirectory.appending(
        path: "weed-\(UUID().uuidString)")
      let store = ObjectStore(port: freePorts(8))
      try store.launch(weed, folder)
      if await isReady(store.endpoint) { return store }
      told = (try? String(contentsOf: folder.appending(path: "log"), encoding: .utf8)) ?? ""
    }
    throw Failure(description: "the object store does not start: \(told.suffix(2_000))")
  }

  /// Runs the server in a shell, which kills it and removes its folder when this process ends.
  private func launch(_ weed: String, _ folder: URL) throws {
    try FileManager.default.createDirectory(
      at: folder.appending(path: "data"), withIntermediateDirectories: true)
    let identities = """
      {"identities": [{"name": "t", "actions": ["Admin", "Read", "Write", "List"], "credentials": [
        {"accessKey": "\(Self.accessKey)", "secretKey": "\(Self.secretKey)"}]}]}
      """
    try identities.write(
      to: folder.appending(path: "s3.json"), atomically: true, encoding: .utf8)
    // Each bucket needs several volumes, and each test has a bucket. Without free volumes, uploads are refused.
    let shell = [
      "/bin/sh", "-c",
      """
      "$@" >"$FOLDER/log" 2>&1 & store=$!
      while kill -0 "$OWNER" 2>/dev/null && kill -0 $store 2>/dev/null; do sleep 1; done
      kill -9 $store 2>/dev/null; kill -0 "$OWNER" 2>/dev/null || rm -rf "$FOLDER"
      """, "sh", weed, "-logtostderr=true", "server", "-dir=\(folder.path)/data", "-ip=127.0.0.1",
      "-ip.bind=127.0.0.1", "-master.port=\(port + 1)", "-master.port.grpc=\(port + 2)",
      "-master.volumeSizeLimitMB=64", "-master.volumePreallocate=false",
      "-volume.port=\(port + 3)", "-volume.port.grpc=\(port + 4)", "-volume.max=1000",
      "-volume.preStopSeconds=0", "-filer", "-filer.port=\(port + 5)",
      "-filer.port.grpc=\(port + 6)", "-s3", "-s3.port=\(port)", "-s3.port.grpc=\(port + 7)",
      "-s3.port.iceberg=0", "-s3.port.lance=0", "-s3.config=\(folder.path)/s3.json",
    ]
    let environment = ProcessInfo.processInfo.environment.merging([
      "FOLDER": folder.path, "OWNER": "\(getpid())",
    ]) { $1 }
    // A reader of this process's output must not wait for the server's output.
    _ = try ChildProcess(
      shell, environment: environment, input: .null, output: .null, errors: .null)
  }

  /// Waits until a server answers an unsigned request with the expected refusal.
  static func isReady(_ endpoint: String, saying answer: Int32 = 403) async -> Bool {
    let deadline = ContinuousClock.now + patience
    while ContinuousClock.now < deadline {
      if let url = URL(string: endpoint), await status(of: url) == answer { return true }
      try? await Task.sleep(for: .milliseconds(200))
    }
    return false
  }

  private static func status(of url: URL) async -> Int32 {
    let ended = try? await ChildProcess.run([
      "curl", "--silent", "--max-time", "5", "--output", "/dev/null", "--write-out",
      "%{http_code}", url.absoluteString,
    ])
    return ended.flatMap { Int32($0.text) } ?? -1
  }

  /// The first of several consecutive ports that are free at the moment.
  static func freePorts(_ count: Int) -> Int {
    while true {
      let first = Int.random(in: 20_000..<32_000)
      if (first..<first + count).allSatisfy(isFree) { return first }
    }
  }

  private static func isFree(_ port: Int) -> Bool {
    let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
    defer { close(descriptor) }
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_port = in_port_t(port).bigEndian
    address.sin_addr.s_addr = in_addr_t(0x7F00_0001).bigEndian
    return withUnsafePointer(to: &address) { pointer in
      pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        bind(descriptor, $0, socklen_t(MemoryLayout<sockaddr_in>.size)) == 0
      }
    }
  }
}
