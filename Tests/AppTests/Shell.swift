import Foundation

/// Commands as people type them.
enum Shell {
  /// Runs them in bash, for two minutes at most unless said otherwise.
  /// - Returns: what they print; errors too where they send them there.
  static func run(
    _ script: String, in folder: String, within seconds: Int = 120
  ) async throws -> String {
    let process = Process()
    process.executableURL = URL(filePath: "/usr/bin/env")
    process.arguments = ["timeout", "\(seconds)", "bash", "-c", script]
    process.currentDirectoryURL = URL(filePath: folder)
    var environment = ProcessInfo.processInfo.environment
    // Debian's Python goes before others: it has the packages.
    environment["PATH"] = "/usr/bin:" + (environment["PATH"] ?? "")
    process.environment = environment
    let pipe = Pipe()
    process.standardInput = FileHandle.nullDevice
    process.standardOutput = pipe
    try process.run()
    // A thread of its own reads: the shared ones must not wait for a command.
    let data = await withCheckedContinuation { continuation in
      Thread.detachNewThread {
        continuation.resume(returning: pipe.fileHandleForReading.readDataToEndOfFile())
      }
    }
    return String(decoding: data, as: UTF8.self)
  }
}
