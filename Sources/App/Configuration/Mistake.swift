internal import YAML

extension Configuration {
  /// One thing wrong with the configuration, told in one line.
  public struct Mistake: Error, Sendable, Equatable, CustomStringConvertible {
    /// Where a value came from.
    public enum Place: Sendable, Equatable {
      /// Nobody gave it.
      case defaults
      /// A file, and where in it if that is known; both count from 1.
      case file(String, line: Int?, column: Int?)
      /// An environment variable, by name.
      case variable(String)
      /// A flag, with its dashes.
      case flag(String)
    }

    /// Where.
    public let place: Place
    /// The key, such as `fetch.timeout` or `auth.tokens[0].scopes`; nil when it is not about one.
    public let key: String?
    /// What is wrong.
    public let message: String

    /// `imagefetch.yaml:12:3: fetch.timeout: "0s" is not within 1ms…10m`, or
    /// `IMAGEFETCH_FETCH_TIMEOUT: …`, or `--port: …`.
    public var description: String {
      let parts: [String?] =
        switch place {
        case .defaults: [key, message]
        case .file(let name, let line?, let column?): ["\(name):\(line):\(column)", key, message]
        case .file(let name, _, _): [name, key, message]
        case .variable(let name), .flag(let name): [name, inner, message]
        }
      return LineText.escaped(parts.compactMap(\.self).joined(separator: ": "))
    }

    /// The part of the key within the value, which the name of a variable does not tell.
    private var inner: String? {
      guard let key, let bracket = key.firstIndex(of: "[") else { return nil }
      return String(key[bracket...])
    }
  }

  /// All that is wrong with a configuration; never empty.
  public struct Mistakes: Error, Sendable, Equatable, CustomStringConvertible {
    /// In the order of the file, then the environment's, the flags', and of keys that contradict
    /// each other.
    public let all: [Mistake]

    /// One line each.
    public var description: String { all.map(\.description).joined(separator: "\n") }
  }
}

/// What a reader of a value has to say against it, before it is known whose key it is.
struct Complaint {
  /// Where in the text; nil stands for the value's own place.
  var location: Location?
  /// What follows the key's path: `[0].scopes`.
  var inner = ""
  var message: String
}
