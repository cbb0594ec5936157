internal import API
internal import Settings
internal import YAML

/// Applies a file, the environment and flags to the defaults, and collects every mistake.
struct ConfigurationLoader {
  private(set) var configuration = Configuration()
  private(set) var mistakes: [Configuration.Mistake] = []
  /// The source of each key's value. The last source that sets a key wins.
  private(set) var sources: [String: Configuration.Mistake.Source] = [:]
  /// Keys whose value is unknown because of a mistake. Rules about these keys are skipped.
  private(set) var mistaken: Set<String> = []

  fileprivate static let keys = Dictionary(
    uniqueKeysWithValues: Configuration.keys.map { ($0.path, $0) })

  /// Reads a YAML file.
  mutating func read(file: String) {
    switch FileText.read(file, limit: Document.Limits().bytes) {
    case .wrong(let why):
      addMistake(.file(file, line: nil, column: nil), nil, why)
      markMistaken("")
    case .bytes(let bytes): read(bytes, of: file)
    }
  }

  /// Reads a file's text.
  mutating func read(_ bytes: [UInt8], of file: String) {
    let document = Document(reading: bytes)
    for mistake in document.mistakes {
      let key = mistake.path.joined(separator: ".").replacing(".[", with: "[")
      addMistake(.file(file, mistake.location), key.isEmpty ? nil : key, mistake.reason.description)
      markMistaken(key)
    }
    let told = mistakes
    if let root = document.root {
      FileWalk(file: file).section(root, path: "", into: &self)
    } else if !told.isEmpty {
      markMistaken("")
    }
    // YAML mistakes, such as aliases, leave null as the value. Drop the mistakes that this null causes at the same place.
    let places = told.map(\.source)
    mistakes = told + mistakes.dropFirst(told.count).filter { !places.contains($0.source) }
    sortMistakes()
  }

  /// Reads the environment variables that start with `IMAGEFETCH_`.
  mutating func read(environment: [String: String]) {
    for key in Configuration.keys {
      guard let text = environment[key.environmentName] else { continue }
      set(key, to: text, from: .variable(key.environmentName))
    }
    let known = Configuration.keys.map(\.environmentName) + [Configuration.tokenVariable]
    for name in environment.keys.sorted() where name.hasPrefix(SettingName.environmentPrefix) {
      guard !known.contains(name), !ConfigurationLoader.isKubernetes(name) else { continue }
      let hint = Suggestion.text(for: name, among: known)
      addMistake(.variable(name), nil, "unknown variable\(hint)")
    }
  }

  /// Reads the flags of the command line.
  mutating func read(flags: [Configuration.Flag]) {
    for flag in flags {
      guard let key = ConfigurationLoader.keys[flag.key] else { continue }
      set(key, to: flag.value, from: .flag(flag.name))
    }
  }

  /// Reads `AWS_REGION`, as AWS's tools do, if `storage.s3.region` is not set.
  mutating func complete(from environment: [String: String]) {
    let (path, name) = ("storage.s3.region", "AWS_REGION")
    guard configuration.storage.images != nil, sources[path] == nil,
      let key = ConfigurationLoader.keys[path],
      let region = environment[name], !region.isEmpty
    else { return }
    set(key, to: region, from: .variable(name))
  }

  /// Checks keys against each other.
  mutating func checkRules() {
    for rule in Rule.all where mistaken.isDisjoint(with: rule.keys) {
      guard let message = rule.check(&configuration, sources) else { continue }
      let given = rule.keys.first { sources[$0] != nil } ?? rule.keys[0]
      addMistake(sources[given] ?? .defaults, given, message)
    }
  }

  /// Sets a key to a node's value, or records what is wrong with it.
  mutating func set(
    _ key: Configuration.Key, to node: Node,
    at place: (Location) -> Configuration.Mistake.Source
  ) {
    var complaints: [Complaint] = []
    key.read(node, &configuration, &complaints)
    sources[key.path] = place(node.location)
    if complaints.isEmpty { return }
    mistaken.insert(key.path)
    for complaint in complaints {
      addMistake(
        place(complaint.location ?? node.location), key.path + complaint.inner, complaint.message)
    }
  }

  /// Marks a key, or all keys of a section, as mistaken. An empty name marks all keys.
  mutating func markMistaken(_ name: String) {
    let stem = String(name.prefix { $0 != "[" })
    for key in Configuration.keys {
      if stem.isEmpty || key.path == stem || key.path.hasPrefix(stem + ".") {
        mistaken.insert(key.path)
      }
    }
  }

  mutating func addMistake(_ place: Configuration.Mistake.Source, _ key: String?, _ message: String)
  {
    mistakes.append(Configuration.Mistake(source: place, key: key, message: message))
  }

  private mutating func set(
    _ key: Configuration.Key, to text: String, from place: Configuration.Mistake.Source
  ) {
    do throws(YAMLError) {
      set(key, to: try key.form.node(of: text)) { _ in place }
    } catch {
      mistaken.insert(key.path)
      addMistake(
        place, key.path, "\(error.location.line):\(error.location.column): \(error.reason)")
    }
  }

  private mutating func sortMistakes() {
    mistakes.sort { a, b in
      guard case .file(_, let lineA, let columnA) = a.source,
        case .file(_, let lineB, let columnB) = b.source
      else { return false }
      return (lineA ?? 0, columnA ?? 0) < (lineB ?? 0, columnB ?? 0)
    }
  }

  /// Whether Kubernetes sets the variable automatically for a Service that is named `imagefetch`.
  private static func isKubernetes(_ name: String) -> Bool {
    let rest = name.dropFirst(SettingName.environmentPrefix.count)
    return rest.wholeMatch(of: /SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT/) != nil
      || rest.wholeMatch(of: /PORT_[0-9]+_(TCP|UDP|SCTP)(_PROTO|_PORT|_ADDR)?/) != nil
  }
}

/// Walks through a file's sections and sets each key.
private struct FileWalk {
  let file: String

  func section(_ node: Node, path: String, into loader: inout ConfigurationLoader) {
    // Null: all keys of the section are commented out.
    if node.scalar?.kind == .null { return }
    guard let pairs = node.mapping else {
      let name = path.isEmpty ? "the file" : "a section"
      loader.addMistake(
        .file(file, node.location), path.isEmpty ? nil : path, "\(name) must be a mapping of keys")
      loader.markMistaken(path)
      return
    }
    for pair in pairs {
      let inner = path.isEmpty ? pair.key : "\(path).\(pair.key)"
      if pair.key.contains(".") {
        // Only nested keys are allowed, so that duplicates are detected.
        loader.addMistake(.file(file, pair.location), inner, "unknown key")
      } else if let key = ConfigurationLoader.keys[inner] {
        loader.set(key, to: pair.value) { .file(file, $0) }
      } else if FileWalk.names(below: inner).isEmpty {
        let hint = Suggestion.text(for: pair.key, among: FileWalk.names(below: path))
        loader.addMistake(.file(file, pair.location), inner, "unknown key\(hint)")
      } else {
        section(pair.value, path: inner, into: &loader)
      }
    }
  }

  /// The names of the keys and sections directly below a section.
  private static func names(below path: String) -> [String] {
    let prefix = path.isEmpty ? "" : path + "."
    let names = Configuration.keys.map(\.path).filter { $0.hasPrefix(prefix) }
      .map { String($0.dropFirst(prefix.count).prefix { $0 != "." }) }
    return Array(Set(names)).sorted()
  }
}

extension Configuration.Mistake.Source {
  init(file: String, _ location: Location) {
    self = .file(file, line: location.line, column: location.column)
  }

  fileprivate static func file(_ file: String, _ location: Location) -> Self {
    .init(file: file, location)
  }
}
