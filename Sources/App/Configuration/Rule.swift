internal import Engine
internal import HTTP
internal import Jobs
internal import Settings
internal import YAML

/// A rule about several keys.
struct Rule: Sendable {
  /// The keys of the rule. A violation is reported at the first of them that is set.
  let keys: [String]
  /// Returns what is wrong, or nil. A rule may also change the configuration, for example read a file that a key names.
  let check: @Sendable (inout Configuration, [String: Configuration.Mistake.Source]) -> String?

  static let all = [
    tokensFile, openness, certificate, key, backoff, viewKeys, webhookSecrets, destinationOwners,
  ]

  /// Reads the tokens of `auth.tokens_file`.
  private static let tokensFile = Rule(
    keys: ["auth.tokens_file", "auth.tokens"]
  ) { configuration, _ in
    guard let path = configuration.auth.tokensFile else { return nil }
    switch FileText.read(path, limit: Document.Limits().bytes) {
    case .wrong(let why): return "\"\(path)\" \(why)"
    case .bytes(let bytes):
      var mistakes: [String] = []
      let tokens = ValueFormat<[Configuration.Token]>.tokens(
        in: bytes, otherThan: configuration.auth.tokens, &mistakes)
      if !mistakes.isEmpty { return "\"\(path)\": " + mistakes.joined(separator: "; ") }
      configuration.auth.filedTokens = tokens
      return nil
    }
  }

  private static let openness = Rule(
    keys: ["server.host", "auth.tokens", "auth.disabled", "auth.tokens_file"]
  ) { configuration, _ in
    let auth = configuration.auth
    guard !AddressText.isLoopback(configuration.http.host), auth.all.isEmpty, !auth.disabled else {
      return nil
    }
    return "\"\(configuration.http.host)\" can be reached from other machines: set auth.tokens, "
      + "or auth.disabled: true to be open to everyone"
  }

  private static let certificate = Rule(
    keys: ["server.tls.certificate", "server.tls.key"]
  ) { configuration, _ in
    let tls = configuration.server.tls
    return tls.certificate != nil && tls.key == nil ? "needs server.tls.key too" : nil
  }

  private static let key = Rule(
    keys: ["server.tls.key", "server.tls.certificate"]
  ) { configuration, _ in
    let tls = configuration.server.tls
    return tls.key != nil && tls.certificate == nil ? "needs server.tls.certificate too" : nil
  }

  private static let backoff = Rule(
    keys: ["jobs.retry_backoff.initial", "jobs.retry_backoff.maximum"]
  ) { configuration, _ in
    let backoff = configuration.engine.retry
    guard backoff.initialBackoff > backoff.maximumBackoff else { return nil }
    let text = QuantityUnit.durations.text
    return "the initial backoff (\(text(backoff.initialBackoff.inNanoseconds))) is longer than "
      + "the maximum (\(text(backoff.maximumBackoff.inNanoseconds)))"
  }

  /// With several owners, each destination must list its owners. Clients choose the object keys, so one owner could
  /// overwrite the objects of another.
  private static let destinationOwners = Rule(
    keys: ["destinations", "auth.tokens", "auth.tokens_file"]
  ) { configuration, _ in
    guard Set(configuration.auth.all.map(\.name)).count > 1,
      let open = configuration.destinations.first(where: { $0.owners == nil })
    else { return nil }
    return
      "\(open.name) has no owners, but the tokens have several names: list the owners that may use it"
  }

  private static let webhookSecrets = Rule(keys: ["webhooks.secret_files"]) { configuration, _ in
    for path in configuration.webhooks.secretFiles {
      switch FileText.webhookSecrets(path) {
      case .success(let secrets): configuration.webhooks.fileSecrets += secrets
      case .failure(let wrong): return "\"\(path)\" \(wrong.why)"
      }
    }
    return nil
  }

  /// Reads `view.keys_file`, unless `view.keys` comes from a source with a higher rank.
  private static let viewKeys = Rule(
    keys: ["view.keys_file", "view.keys"]
  ) { configuration, places in
    guard let path = configuration.view.keysFile else { return nil }
    let (fileRank, keysRank) = (places["view.keys_file"]?.rank, places["view.keys"]?.rank ?? -1)
    if !configuration.view.keys.isEmpty {
      if fileRank == keysRank { return "is set together with view.keys; set only one of them" }
      if fileRank ?? 0 < keysRank {
        configuration.view.keysFile = nil
        return nil
      }
    }
    switch FileText.read(path, limit: 65_536) {
    case .wrong(let why): return "\"\(path)\" \(why)"
    case .bytes(let bytes):
      let lines = String(decoding: bytes, as: UTF8.self).split(whereSeparator: \.isNewline)
        .map { $0.trimming(while: \.isWhitespace) }
        .filter { !$0.isEmpty && !$0.hasPrefix("#") }
      let keys = lines.map { HexText.bytes($0) }
      if let bad = keys.firstIndex(where: { $0.map { $0.count < 16 } ?? true }) {
        return "\"\(path)\": key \(bad + 1) is not 32 or more hexadecimal digits"
      }
      if keys.isEmpty { return "\"\(path)\" contains no key" }
      configuration.view.keys = keys.compactMap(\.self)
      return nil
    }
  }
}

extension Configuration.Mistake.Source {
  /// The rank of the source. The source with the higher rank wins.
  fileprivate var rank: Int {
    switch self {
    case .defaults: 0
    case .file: 1
    case .variable: 2
    case .flag: 3
    }
  }
}

extension Configuration {
  /// One mistake in the configuration. Its description is one line.
  package struct Mistake: Error, Sendable, Equatable, CustomStringConvertible {
    /// The source of a value.
    enum Source: Sendable, Equatable {
      /// The built-in default.
      case defaults
      /// A file, with line and column from 1 if they are known.
      case file(String, line: Int?, column: Int?)
      /// The name of an environment variable.
      case variable(String)
      /// A flag with its dashes.
      case flag(String)
    }

    let source: Source
    /// The key, such as `fetch.timeout` or `auth.tokens[0].scopes`; nil if the mistake is not about a key.
    let key: String?
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
