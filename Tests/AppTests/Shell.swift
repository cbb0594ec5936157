import Foundation
import TestSupport

/// Shell commands.
enum Shell {
  /// Runs commands in bash, for at most ten minutes by default.
  /// - Returns: Their standard output. It includes errors if the commands redirect them.
  static func run(
    _ script: String, in folder: String, within seconds: Int = 600
  ) async throws -> String {
    var environment = ProcessInfo.processInfo.environment
    // Debian's Python comes first, because it has the packages.
    environment["PATH"] = "/usr/bin:" + (environment["PATH"] ?? "")
    return try await ChildProcess.run(
      ["timeout", "\(seconds)", "bash", "-c", script], environment: environment, in: folder,
      input: Data()
    ).text
  }
}
