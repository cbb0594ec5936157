internal import Foundation
internal import Glibc

/// A real object store that speaks S3 and checks signatures (SeaweedFS), on 127.0.0.1: one for all tests of a process. It
/// ends when the process does.
public struct ObjectStore: Sendable {
  /// Why there is none.
  public struct Failure: Error, CustomStringConvertible {
    /// What it said last.
    public let description: String
  }

  /// Where it listens.
  public let port: Int
  /// The one key that it knows.
  public static let accessKey = "AKTEST"
  /// With what has to be escaped in a URL.
  public static let secretKey = "SKTEST/+secret"

  /// Its URL, without a path.
  public var endpoint: String { "http://127.0.0.1:\(port)" }

  /// The process's; started when it is first asked for, which takes some seconds.
  public static func shared() async throws -> ObjectStore { try await starting.value }

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

  /// Runs the store below a shell that ends it, and removes its folder, once this process is gone.
  private func launch(_ weed: String, _ folder: URL) throws {
    try FileManager.default.createDirectory(
      at: folder.appending(path: "data"), withIntermediateDirectories: true)
    let identities = """
      {"identities": [{"name": "t", "actions": ["Admin", "Read", "Write", "List"], "credentials": [
        {"accessKey": "\(Self.accessKey)", "secretKey": "\(Self.secretKey)"}]}]}
      """
    try identities.write(
      to: folder.appending(path: "s3.json"), atomically: true, encoding: .utf8)
    // Each bucket takes several volumes, and each test a bucket: where they run out, what is put is refused.
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
    // Whoever reads this process's output to its end must not wait for the store's.
    _ = try ChildProcess(
      shell, environment: environment, input: .null, output: .null, errors: .null)
  }

  /// Waits until a server answers a request without a signature as it does, which is its first answer that says
  /// something.
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

  /// The first of so many ports in a row that nobody listens on at the moment.
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
