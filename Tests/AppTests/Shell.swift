import Foundation
import TestSupport

/// Commands as people type them.
enum Shell {
  /// Runs them in bash, for ten minutes at most unless said otherwise.
  /// - Returns: what they print; errors too where they send them there.
  static func run(
    _ script: String, in folder: String, within seconds: Int = 600
  ) async throws -> String {
    var environment = ProcessInfo.processInfo.environment
    // Debian's Python goes before others: it has the packages.
    environment["PATH"] = "/usr/bin:" + (environment["PATH"] ?? "")
    return try await ChildProcess.run(
      ["timeout", "\(seconds)", "bash", "-c", script], environment: environment, in: folder,
      input: Data()
    ).text
  }
}
