internal import API
internal import YAML

/// Lays file, environment and flags over the defaults, and notes every mistake on the way.
struct Loader {
  private(set) var configuration = Configuration()
  private(set) var mistakes: [Configuration.Mistake] = []
  /// Where each key's value came from, the last one to win.
  private(set) var places: [String: Configuration.Mistake.Place] = [:]
  /// Keys whose value is unknown for a mistake: what depends on them is not judged.
  private(set) var mistaken: Set<String> = []

  fileprivate static let keys = Dictionary(
    uniqueKeysWithValues: Configuration.keys.map { ($0.path, $0) })

  /// Reads a file of the YAML kind.
  mutating func read(file: String) {
    switch FileText.read(file, limit: Document.Limits().bytes) {
    case .wrong(let why):
      note(.file(file, line: nil, column: nil), nil, why)
      spoil("")
    case .bytes(let bytes): read(bytes, of: file)
    }
  }

  /// Reads a file's text.
  mutating func read(_ bytes: [UInt8], of file: String) {
    let document = Document(reading: bytes)
    for mistake in document.mistakes {
      let key = mistake.path.joined(separator: ".").replacing(".[", with: "[")
      note(.file(file, mistake.location), key.isEmpty ? nil : key, mistake.reason.description)
      spoil(key)
    }
    let told = mistakes
    if let root = document.root {
      FileWalk(file: file).section(root, path: "", into: &self)
    } else if !told.isEmpty {
      spoil("")
    }
    // What an alias stands for was read as null: that it is none is not a second mistake.
    let places = told.map(\.place)
    mistakes = told + mistakes.dropFirst(told.count).filter { !places.contains($0.place) }
    sortMistakes()
  }

  /// Reads the variables that are ours by name.
  mutating func read(environment: [String: String]) {
    for key in Configuration.keys {
      guard let text = environment[key.environmentName] else { continue }
      set(key, to: text, from: .variable(key.environmentName))
    }
    let known = Configuration.keys.map(\.environmentName) + [Configuration.tokenVariable]
    for name in environment.keys.sorted() where name.hasPrefix(Configuration.Key.environmentPrefix)
    {
      guard !known.contains(name), !Loader.isKubernetes(name) else { continue }
      let hint = Suggestion.text(for: name, among: known)
      note(.variable(name), nil, "no key has this variable\(hint)")
    }
  }

  /// Reads the command line's flags.
  mutating func read(flags: [Configuration.Flag]) {
    for flag in flags {
      guard let key = Loader.keys[flag.key] else { continue }
      set(key, to: flag.value, from: .flag(flag.name))
    }
  }

  /// Reads what AWS's tools go by, where no key says otherwise.
  mutating func complete(from environment: [String: String]) {
    let (path, name) = ("storage.s3.region", "AWS_REGION")
    guard configuration.storage.images != nil, places[path] == nil, let key = Loader.keys[path],
      let region = environment[name], !region.isEmpty
    else { return }
    set(key, to: region, from: .variable(name))
  }

  /// Judges what keys say together.
  mutating func finish() {
    for rule in Rule.all where mistaken.isDisjoint(with: rule.keys) {
      guard let message = rule.judge(&configuration, places) else { continue }
      let given = rule.keys.first { places[$0] != nil } ?? rule.keys[0]
      note(places[given] ?? .defaults, given, message)
    }
  }

  /// Sets a key to a node's value, or notes what is wrong with it.
  mutating func set(
    _ key: Configuration.Key, to node: Node,
    at place: (Location) -> Configuration.Mistake.Place
  ) {
    var complaints: [Complaint] = []
    key.read(node, &configuration, &complaints)
    places[key.path] = place(node.location)
    if complaints.isEmpty { return }
    mistaken.insert(key.path)
    for complaint in complaints {
      note(
        place(complaint.location ?? node.location), key.path + complaint.inner, complaint.message)
    }
  }

  /// Marks a key as mistaken, or all keys of a section; of all sections by the empty name.
  mutating func spoil(_ name: String) {
    let stem = String(name.prefix { $0 != "[" })
    for key in Configuration.keys {
      if stem.isEmpty || key.path == stem || key.path.hasPrefix(stem + ".") {
        mistaken.insert(key.path)
      }
    }
  }

  /// Notes a mistake.
  mutating func note(_ place: Configuration.Mistake.Place, _ key: String?, _ message: String) {
    mistakes.append(Configuration.Mistake(place: place, key: key, message: message))
  }

  private mutating func set(
    _ key: Configuration.Key, to text: String, from place: Configuration.Mistake.Place
  ) {
    do throws(YAMLError) {
      set(key, to: try key.form.node(of: text)) { _ in place }
    } catch {
      mistaken.insert(key.path)
      note(place, key.path, "\(error.location.line):\(error.location.column): \(error.reason)")
    }
  }

  private mutating func sortMistakes() {
    mistakes.sort { a, b in
      guard case .file(_, let lineA, let columnA) = a.place,
        case .file(_, let lineB, let columnB) = b.place
      else { return false }
      return (lineA ?? 0, columnA ?? 0) < (lineB ?? 0, columnB ?? 0)
    }
  }

  /// Whether Kubernetes sets it by itself, beside a Service that is named `imagefetch`.
  private static func isKubernetes(_ name: String) -> Bool {
    let rest = name.dropFirst(Configuration.Key.environmentPrefix.count)
    return rest.wholeMatch(of: /SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT/) != nil
      || rest.wholeMatch(of: /PORT_[0-9]+_(TCP|UDP|SCTP)(_PROTO|_PORT|_ADDR)?/) != nil
  }
}

/// Goes through a file's sections and gives each key its value.
private struct FileWalk {
  let file: String

  func section(_ node: Node, path: String, into loader: inout Loader) {
    // A section whose keys are all commented out.
    if node.scalar?.kind == .null { return }
    guard let pairs = node.mapping else {
      let name = path.isEmpty ? "the file" : "a section"
      loader.note(
        .file(file, node.location), path.isEmpty ? nil : path, "\(name) must be a mapping of keys")
      loader.spoil(path)
      return
    }
    for pair in pairs {
      let inner = path.isEmpty ? pair.key : "\(path).\(pair.key)"
      if pair.key.contains(".") {
        // One way to write a key, so that a duplicate is seen.
        loader.note(.file(file, pair.location), inner, "unknown key")
      } else if let key = Loader.keys[inner] {
        loader.set(key, to: pair.value) { .file(file, $0) }
      } else if FileWalk.names(below: inner).isEmpty {
        let hint = Suggestion.text(for: pair.key, among: FileWalk.names(below: path))
        loader.note(.file(file, pair.location), inner, "unknown key\(hint)")
      } else {
        section(pair.value, path: inner, into: &loader)
      }
    }
  }

  /// The keys and sections right below a section.
  private static func names(below path: String) -> [String] {
    let prefix = path.isEmpty ? "" : path + "."
    let names = Configuration.keys.map(\.path).filter { $0.hasPrefix(prefix) }
      .map { String($0.dropFirst(prefix.count).prefix { $0 != "." }) }
    return Array(Set(names)).sorted()
  }
}

extension Configuration.Mistake.Place {
  init(file: String, _ location: Location) {
    self = .file(file, line: location.line, column: location.column)
  }

  fileprivate static func file(_ file: String, _ location: Location) -> Self {
    .init(file: file, location)
  }
}
