/// How log records are written.
public enum LogFormat: String, Sendable, Equatable, CaseIterable {
  /// Text on a terminal, JSON otherwise.
  case auto
  /// `2026-11-21T09:30:00.123Z info  listening address=127.0.0.1 port=8080`.
  case text
  /// One JSON object a line.
  case json
}
