internal import Glibc
package import Logging

/// The format of log lines.
package enum LogFormat: String, Sendable, Equatable, CaseIterable {
  /// Text on a terminal, JSON otherwise.
  case auto
  /// `2026-11-21T09:30:00.123Z info  listening address=127.0.0.1 port=8080`.
  case text
  /// One JSON object per line.
  case json

  /// Replaces `auto` by the format for this descriptor.
  func resolved(for descriptor: Int32) -> LogFormat {
    self == .auto ? (isatty(descriptor) == 1 ? .text : .json) : self
  }

  /// Sets up logging to standard error. Call it once, before the first logger is created.
  ///
  /// - Returns: The service's logger.
  package static func start(_ configuration: Configuration.Log) -> Logger {
    let format = configuration.format.resolved(for: STDERR_FILENO)
    let writer = StandardError.writer(format)
    LoggingSystem.bootstrap { label in
      LineLogHandler(label: label, level: configuration.level, format: format, write: writer.add)
    }
    return Logger(label: "imagefetch")
  }
}
