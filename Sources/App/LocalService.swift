internal import Digests
internal import Foundation
internal import Glibc
internal import Logging

/// The service within this process, for a command of it alone: on a free port of loopback, with a token that nobody else
/// knows, its data in a folder that goes when the command has ended.
public enum LocalService {
  /// Where it is, and what it knows the command by.
  public struct Place: Sendable {
    /// `http://127.0.0.1:40123`
    public let address: String
    public let token: String
  }

  /// Runs the body beside the service.
  ///
  /// - Parameters:
  ///   - configuration: as `serve` has it; where it listens, whom it lets in and where it keeps things is not its to say.
  ///   - body: is told where the service is, once it can be asked. What comes of jobs it learns there: the log holds
  ///     only what goes wrong in the service.
  public static func run<Outcome: Sendable>(
    _ configuration: Configuration,
    _ body: @escaping @Sendable (Place) async -> Outcome
  ) async throws(StartError) -> Outcome {
    let folder = try TemporaryFolder()
    defer { folder.remove() }
    let token = (0..<4).map { _ in String(UInt64.random(in: .min ... .max), radix: 36) }.joined()
    let local = configuration.forOneCommand(token: token, folder: folder.path)
    return try await Service.run(local, log: LogFormat.start(local.log)) { port in
      await body(Place(address: "http://127.0.0.1:\(port)", token: token))
    }
  }
}

extension Configuration {
  /// The same rules for origins and images, for one client in this process.
  func forOneCommand(token: String, folder: String) -> Configuration {
    var local = self
    let key = Token(
      name: "get", sha256: Array(SHA256.hash(data: Data(token.utf8))), scopes: [.jobs])
    local.server = Server()
    local.server.port = 0
    // The command has its images, or wants no more of them.
    local.server.drainTimeout = .zero
    local.auth = Auth()
    local.auth.tokens = [key]
    local.api = API()
    local.storage.path = folder
    local.storage.jobs = nil
    local.storage.jobsPasswordFile = nil
    local.storage.images = nil
    local.sources = Sources()
    local.tracing = Tracing()
    local.log.level = max(log.level, .error)
    return local
  }
}

/// A folder that nobody else can look into.
private struct TemporaryFolder {
  let path: String

  init() throws(StartError) {
    var template = Array((NSTemporaryDirectory() + "/imagefetch-XXXXXX").utf8CString)
    guard let made = mkdtemp(&template) else {
      let reason = String(cString: strerror(errno))
      throw .operatorMistake("\(NSTemporaryDirectory()): no folder can be made there: \(reason)")
    }
    path = String(cString: made)
  }

  func remove() { try? FileManager.default.removeItem(atPath: path) }
}
