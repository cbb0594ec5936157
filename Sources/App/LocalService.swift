internal import API
internal import Digests
internal import Foundation
internal import Glibc
internal import HTTP
internal import Logging

/// Runs the service in this process for a single command, such as `imagefetch get`.
///
/// The service listens on a free loopback port and accepts only a random token. Its data is in a temporary folder, which
/// is deleted when the command ends.
package enum LocalService {
  /// The address of the service and the token for its requests.
  package struct Endpoint: Sendable {
    /// `http://127.0.0.1:40123`
    package let address: String
    package let token: String
  }

  /// Runs `body` while the service runs, and returns its result.
  ///
  /// - Parameters:
  ///   - configuration: as for `serve`. Its settings for listening, tokens and storage are replaced.
  ///   - body: called once the service answers requests. It gets the results of jobs from the API; the log contains only
  ///     errors of the service.
  package static func run<Outcome: Sendable>(
    _ configuration: Configuration,
    _ body: @escaping @Sendable (Endpoint) async -> Outcome
  ) async throws(StartError) -> Outcome {
    let folder = try TemporaryFolder()
    defer { folder.remove() }
    let token = (0..<4).map { _ in String(UInt64.random(in: .min ... .max), radix: 36) }.joined()
    let local = configuration.forOneCommand(token: token, folder: folder.path)
    return try await Service.run(local, log: LogFormat.start(local.log)) { port in
      await body(Endpoint(address: "http://127.0.0.1:\(port)", token: token))
    }
  }
}

extension Configuration {
  /// The same limits for origins and images, with one token and a temporary folder.
  func forOneCommand(token: String, folder: String) -> Configuration {
    var local = self
    let key = Token(
      name: "get", sha256: Array(SHA256.hash(data: Data(token.utf8))), scopes: [.jobs])
    local.reset("server", "auth", "api", "sources", "tracing")
    local.http.port = 0
    // The command has received its images or was cancelled, so running jobs need not finish.
    local.server.drainTimeout = .zero
    (local.auth.tokens, local.auth.filedTokens) = ([key], [])
    local.storage.path = folder
    local.storage.jobs = nil
    local.storage.jobsPasswordFile = nil
    local.storage.images = nil
    local.log.level = max(log.level, .error)
    return local
  }
}

/// A temporary folder that only this user can read.
private struct TemporaryFolder {
  let path: String

  init() throws(StartError) {
    var template = Array((NSTemporaryDirectory() + "/imagefetch-XXXXXX").utf8CString)
    guard let made = mkdtemp(&template) else {
      let reason = String(cString: strerror(errno))
      throw .operatorMistake("\(NSTemporaryDirectory()): can't create a folder there: \(reason)")
    }
    path = String(cString: made)
  }

  func remove() { try? FileManager.default.removeItem(atPath: path) }
}
