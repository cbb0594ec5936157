internal import Settings

extension Configuration {
  /// One mistake in the configuration. Its description is one line.
  package struct Mistake: Error, Sendable, Equatable, CustomStringConvertible {
    /// The source of a value.
    package enum Source: Sendable, Equatable {
      /// The built-in default.
      case defaults
      /// A file, with line and column from 1 if they are known.
      case file(String, line: Int?, column: Int?)
      /// The name of an environment variable.
      case variable(String)
      /// A flag with its dashes.
      case flag(String)
    }

    package let source: Source
    /// The key, such as `fetch.timeout` or `auth.tokens[0].scopes`; nil if the mistake is not about a key.
    package let key: String?
    /// The mistake, without its source and key.
    package let message: String

    /// Such as `imagefetch.yaml:12:3: fetch.timeout: "0s" is not within 1ms…10m`, `IMAGEFETCH_FETCH_TIMEOUT: …` or
    /// `--port: …`.
    package var description: String {
      let parts: [String?] =
        switch source {
        case .defaults: [key, message]
        case .file(let name, let line?, let column?): ["\(name):\(line):\(column)", key, message]
        case .file(let name, _, _): [name, key, message]
        case .variable(let name), .flag(let name): [name, inner, message]
        }
      return LineText.escaped(parts.compactMap(\.self).joined(separator: ": "))
    }

    /// The part of the key inside the value, such as `[0].scopes`. The variable or flag already names the rest.
    private var inner: String? {
      guard let key, let bracket = key.firstIndex(of: "[") else { return nil }
      return String(key[bracket...])
    }
  }

  /// All mistakes of a configuration; never empty.
  package struct Mistakes: Error, Sendable, Equatable, CustomStringConvertible {
    /// Mistakes of the file, then of the environment, of flags, and of keys that contradict each other.
    package let all: [Mistake]

    /// One line per mistake.
    package var description: String { all.map(\.description).joined(separator: "\n") }
  }
}
