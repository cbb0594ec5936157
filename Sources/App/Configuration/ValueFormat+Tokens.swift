internal import API
internal import Jobs
internal import Settings
internal import YAML

extension ValueFormat<[Configuration.Token]> {
  /// `auth.tokens`: entries with a name, a hash or a file, and scopes.
  static let tokens: ValueFormat = {
    let list = ValueFormat.list(.token)
    // In an environment variable, the entries are written as YAML, not separated by commas.
    return ValueFormat(list.allowedValues, form: .yaml) { node, complaints in
      guard let tokens = list.read(node, &complaints) else { return nil }
      let before = complaints.count
      // Names may repeat: an owner can have two tokens, to change one without an interruption.
      reportDuplicates(tokens.map(\.sha256), node, &complaints)
      return complaints.count == before ? tokens : nil
    } show: {
      list.show($0)
    }
  }()

  /// Reads the tokens of `auth.tokens_file`, which contains an array of entries.
  ///
  /// - Parameters:
  ///   - others: the tokens of `auth.tokens`. The file must not repeat one of them.
  ///   - mistakes: receives what is wrong with the file.
  static func tokens(
    in bytes: [UInt8], otherThan others: [Configuration.Token], _ mistakes: inout [String]
  ) -> [Configuration.Token] {
    let document = Document(reading: bytes)
    var complaints = document.mistakes.map {
      Complaint(location: $0.location, inner: "", message: "\($0.reason)")
    }
    var found: [Configuration.Token] = []
    if let root = document.root, complaints.isEmpty {
      found = tokens.read(root, &complaints) ?? []
      for (index, token) in found.enumerated()
      where others.contains(where: { $0.sha256 == token.sha256 }) {
        let message = "has the same token as one of auth.tokens"
        complaints.append(Complaint(location: nil, inner: "[\(index)]", message: message))
      }
    }
    mistakes = complaints.map { complaint in
      let place = complaint.location.map { "\($0.line):\($0.column): " } ?? ""
      return place + complaint.inner + (complaint.inner.isEmpty ? "" : ": ") + complaint.message
    }
    return found
  }

  private static func reportDuplicates(
    _ values: [some Hashable], _ node: Node, _ complaints: inout [Complaint]
  ) {
    for (index, value) in values.enumerated() {
      guard let first = values.firstIndex(of: value), first < index else { continue }
      let message = "has the same token as auth.tokens[\(first)]"
      let place = node.sequence?[index].location
      complaints.append(Complaint(location: place, inner: "[\(index)]", message: message))
    }
  }
}

extension ValueFormat<Configuration.Token> {
  fileprivate static let token = ValueFormat(
    "with name, sha256 (or token_file) and scopes", form: .yaml, isSecret: true
  ) { node, complaints in
    guard let pairs = node.mapping else {
      let message = "is not an entry with name, sha256 (or token_file) and scopes"
      complaints.append(Complaint(location: node.location, message: message))
      return nil
    }
    let before = complaints.count
    for pair in pairs where !members.contains(pair.key) {
      let message = "unknown key\(Suggestion.text(for: pair.key, among: members))"
      complaints.append(
        Complaint(location: pair.location, inner: ".\(pair.key)", message: message))
    }
    let name = read("name", ValueFormat<String>.tokenName, of: node, &complaints)
    let scopes = read(
      "scopes", ValueFormat<[API.Scope]>.list(.choice(), minimum: 1), of: node,
      &complaints)
    let hash = hash(of: node, &complaints)
    let maxQueued = readLimit("max_queued", .integer(1...10_000_000), of: node, &complaints)
    let maxPriority = readLimit(
      "max_priority", ValueFormat<Priority>.priority, of: node, &complaints)
    let rate = readLimit("rate", ValueFormat<Double>.number(1...1_000_000), of: node, &complaints)
    let maxBytes = readLimit(
      "max_bytes_per_day", ValueFormat<Int>.size(1...(1 << 50)), of: node, &complaints)
    let (secrets, files) = webhookSecrets(of: node, &complaints)
    guard let name, let scopes, let hash, complaints.count == before else { return nil }
    let file = node["token_file"]?.scalar?.text
    var token = Configuration.Token(name: name, sha256: hash, file: file, scopes: Set(scopes))
    (token.maxQueued, token.maxPriority) = (maxQueued, maxPriority)
    (token.rate, token.maxBytesPerDay) = (rate, maxBytes)
    (token.webhookSecrets, token.webhookSecretFiles) = (secrets, files)
    return token
  } show: { token in
    let scopes = API.Scope.allCases.filter(token.scopes.contains)
    let list = scopes.map(\.rawValue).joined(separator: ", ")
    let secret =
      token.file.map { "token_file: " + ValueFormat<String>.file.show($0) } ?? "sha256: hidden"
    let limits = [
      token.maxQueued.map { "max_queued: \($0)" },
      token.maxPriority.map { "max_priority: \($0.word)" },
      token.rate.map { "rate: " + ValueFormat<Double>.number(1...1_000_000).show($0) },
      token.maxBytesPerDay.map { "max_bytes_per_day: " + QuantityUnit.sizes.text($0) },
      token.webhookSecretFiles.isEmpty
        ? nil
        : "webhook_secret_files: "
          + ValueFormat<[String]>.list(.file).show(token.webhookSecretFiles),
    ].compactMap(\.self)
    let name = ValueFormat<String>.tokenName.show(token.name)
    let members = ["name: \(name)", secret, "scopes: [\(list)]"] + limits
    return "{ \(members.joined(separator: ", ")) }"
  }

  private static var members: [String] {
    [
      "name", "sha256", "token_file", "scopes", "max_queued", "max_priority", "rate",
      "max_bytes_per_day", "webhook_secrets", "webhook_secret_files",
    ]
  }

  /// Reads an optional member.
  private static func readLimit<Member>(
    _ member: String, _ format: ValueFormat<Member>, of node: Node,
    _ complaints: inout [Complaint]
  ) -> Member? {
    node[member] == nil ? nil : read(member, format, of: node, &complaints)
  }

  private static func webhookSecrets(
    of node: Node, _ complaints: inout [Complaint]
  ) -> (secrets: [WebhookSecret], files: [String]) {
    var secrets: [WebhookSecret] = []
    if node["webhook_secrets"] != nil {
      secrets +=
        read(
          "webhook_secrets", ValueFormat<[WebhookSecret]>.list(.webhookSecret), of: node,
          &complaints) ?? []
    }
    guard let files = node["webhook_secret_files"],
      let paths = read(
        "webhook_secret_files", ValueFormat<[String]>.list(.file), of: node, &complaints)
    else { return (secrets, []) }
    for path in paths {
      switch FileText.webhookSecrets(path) {
      case .success(let more): secrets += more
      case .failure(let wrong):
        let message = "\(LineText.quoted(path)) \(wrong.why)"
        complaints.append(
          Complaint(location: files.location, inner: ".webhook_secret_files", message: message))
      }
    }
    return (secrets, paths)
  }

  private static func read<Member>(
    _ member: String, _ format: ValueFormat<Member>, of node: Node,
    _ complaints: inout [Complaint]
  ) -> Member? {
    guard let value = node[member] else {
      complaints.append(
        Complaint(location: node.location, inner: ".\(member)", message: "is missing"))
      return nil
    }
    var own: [Complaint] = []
    let result = format.read(value, &own)
    complaints += own.map {
      Complaint(location: $0.location, inner: ".\(member)" + $0.inner, message: $0.message)
    }
    return result
  }

  private static func hash(of node: Node, _ complaints: inout [Complaint]) -> [UInt8]? {
    switch (node["sha256"], node["token_file"]) {
    case (_?, nil):
      return read("sha256", ValueFormat<[UInt8]>.secretHex(32...32), of: node, &complaints)
    case (nil, let file?):
      guard let path = read("token_file", ValueFormat<String>.file, of: node, &complaints) else {
        return nil
      }
      switch FileText.tokenHash(path) {
      case .bytes(let hash): return hash
      case .wrong(let why):
        complaints.append(
          Complaint(
            location: file.location, inner: ".token_file",
            message: "\(LineText.quoted(path)) \(why)"))
        return nil
      }
    default:
      let message = "needs either sha256 or token_file"
      complaints.append(Complaint(location: node.location, message: message))
      return nil
    }
  }
}

extension ValueFormat<String> {
  static let tokenName = text("a name of 1…64 of A-Z a-z 0-9 . _ -") { text in
    let isFit =
      text.utf8.count <= 64
      && text.allSatisfy { $0.isASCII && ($0.isLetter || $0.isNumber || "._-".contains($0)) }
    guard isFit else { return "is not 1…64 of A-Z a-z 0-9 . _ -" }
    // `view` is the owner of the jobs of GET /image. A token with that name would own these jobs too.
    return text == "view" ? "is reserved" : nil
  }
}

extension ValueFormat<Priority> {
  fileprivate static let priority: ValueFormat = {
    let takes = "one of " + Priority.allCases.map(\.word).joined(separator: ", ")
    return ValueFormat(takes, form: .text) { scalar in
      Priority(word: scalar.text).map { .value($0) } ?? .wrong("is not \(takes)")
    } show: {
      $0.word
    }
  }()
}
