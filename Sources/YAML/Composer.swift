/// Builds a tree of nodes from events. It is recursive; the depth limit bounds its use of the stack.
struct Composer {
  private let reader: EventReader
  private let limits: Document.Limits
  private var nodes = 0
  private var path: [String] = []
  /// Mistakes after which reading could continue.
  private(set) var mistakes: [YAMLError] = []

  init(reader: EventReader, limits: Document.Limits) {
    (self.reader, self.limits) = (reader, limits)
  }

  /// Reads the stream's only document. Returns nil if the stream is empty.
  mutating func document() throws(YAMLError) -> Node? {
    _ = try reader.next()
    guard case .documentStart = try reader.next().event else { return nil }
    let first = try reader.next()
    let root = try node(first.event, at: first.location)
    _ = try reader.next()
    let end = try reader.next()
    if case .documentStart = end.event { addMistake(.severalDocuments, at: end.location, path: []) }
    return root
  }

  private mutating func node(
    _ event: Event, at location: Location, depth: Int = 0
  ) throws(YAMLError) -> Node {
    nodes += 1
    guard nodes <= limits.nodes else {
      throw YAMLError(.tooManyNodes(limit: limits.nodes), at: location, path: path)
    }
    switch event {
    case .scalar(let scalar): return checked(scalar, at: location)
    case .sequenceStart(let tag):
      check(tag, "seq", at: location)
      return try sequence(at: location, depth: depth + 1)
    case .mappingStart(let tag):
      check(tag, "map", at: location)
      return try mapping(at: location, depth: depth + 1)
    case .alias(let name):
      addMistake(.alias(name: name), at: location, path: path)
      return .null(at: location)
    case .streamStart, .streamEnd, .documentStart, .documentEnd, .sequenceEnd, .mappingEnd:
      // libyaml never emits these events where a node is expected.
      return .null(at: location)
    }
  }

  private mutating func sequence(at location: Location, depth: Int) throws(YAMLError) -> Node {
    try checkDepth(depth, at: location)
    var items: [Node] = []
    while true {
      let next = try reader.next()
      if case .sequenceEnd = next.event { return Node(.sequence(items), at: location) }
      path.append("[\(items.count)]")
      items.append(try node(next.event, at: next.location, depth: depth))
      path.removeLast()
    }
  }

  private mutating func mapping(at location: Location, depth: Int) throws(YAMLError) -> Node {
    try checkDepth(depth, at: location)
    var pairs: [Node.Pair] = []
    var places: [String: Location] = [:]
    while true {
      let next = try reader.next()
      if case .mappingEnd = next.event { return Node(.mapping(pairs), at: location) }
      let key = try node(next.event, at: next.location, depth: depth)
      path.append(key.scalar?.text ?? "?")
      let start = try reader.next()
      let value = try node(start.event, at: start.location, depth: depth)
      if let text = key.scalar?.text {
        if let first = places[text] {
          addMistake(.duplicateKey(first: first), at: key.location, path: path)
        } else {
          places[text] = key.location
          pairs.append(Node.Pair(key: text, location: key.location, value: value))
        }
      } else {
        addMistake(.keyNotScalar, at: key.location, path: path.dropLast())
      }
      path.removeLast()
    }
  }

  private func checkDepth(_ depth: Int, at location: Location) throws(YAMLError) {
    guard depth <= limits.depth else {
      throw YAMLError(.tooDeep(limit: limits.depth), at: location, path: path)
    }
  }

  private mutating func checked(_ scalar: Scalar, at location: Location) -> Node {
    let types = ["str", "null", "bool", "int", "float"].map { "tag:yaml.org,2002:" + $0 }
    guard let tag = scalar.tag, tag != "!", !types.contains(tag) else {
      return Node(.scalar(scalar), at: location)
    }
    addMistake(.unknownTag(tag), at: location, path: path)
    return .null(at: location)
  }

  private mutating func check(_ tag: String?, _ type: String, at location: Location) {
    guard let tag, tag != "!", tag != "tag:yaml.org,2002:" + type else { return }
    addMistake(.unknownTag(tag), at: location, path: path)
  }

  private mutating func addMistake(
    _ reason: YAMLError.Reason, at location: Location, path: some Sequence<String>
  ) {
    // 100 mistakes are enough for a reader. More would only help an attacker to fill the memory.
    guard mistakes.count < 100 else { return }
    mistakes.append(YAMLError(reason, at: location, path: Array(path)))
  }
}

extension Node {
  fileprivate static func null(at location: Location) -> Node {
    Node(.scalar(Scalar("", style: .plain)), at: location)
  }
}
