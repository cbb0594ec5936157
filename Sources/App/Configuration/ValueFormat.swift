internal import YAML

/// How a text outside a file (a variable's, a flag's) stands for a value.
enum TextForm: Sendable {
  /// As a bare YAML scalar; empty is null.
  case plain
  /// As itself; empty is null.
  case text
  /// Split at commas; each part is such a text.
  indirect case list(TextForm)
  /// As YAML of its own, in flow or block style.
  case yaml

  /// The node that the text stands for.
  ///
  /// - Throws: where it has to be YAML and is not.
  func node(of text: String) throws(YAMLError) -> Node {
    let start = Location(line: 1, column: 1)
    switch self {
    case .plain: return Node(.scalar(Scalar(text, style: .plain)), at: start)
    case .text:
      return Node(.scalar(Scalar(text, style: text.isEmpty ? .plain : .quoted)), at: start)
    case .list(let form):
      var nodes: [Node] = []
      for part in text.split(separator: ",") {
        let trimmed = part.trimming(while: \.isWhitespace)
        if !trimmed.isEmpty { nodes.append(try form.node(of: String(trimmed))) }
      }
      return Node(.sequence(nodes), at: start)
    case .yaml:
      return try Document(text).root ?? Node(.scalar(Scalar("", style: .plain)), at: start)
    }
  }
}

extension Substring {
  /// Without such characters at either end.
  func trimming(while matches: (Character) -> Bool) -> Substring {
    var rest = drop(while: matches)
    while let last = rest.last, matches(last) { rest.removeLast() }
    return rest
  }
}

/// What a key's value may be: how to read, bound and print it.
struct ValueFormat<Value: Sendable>: Sendable {
  /// What it takes, for people: `1ms…10m`.
  let takes: String
  let form: TextForm
  /// The value, or nil with at least one complaint.
  let read: @Sendable (Node, inout [Complaint]) -> Value?
  /// The value in YAML's flow style.
  let show: @Sendable (Value) -> String
  /// Whether no message may tell what stands there: a secret with a slip in it, or in the wrong place, is still one.
  let isSecret: Bool

  init(
    _ takes: String, form: TextForm, isSecret: Bool = false,
    read: @escaping @Sendable (Node, inout [Complaint]) -> Value?,
    show: @escaping @Sendable (Value) -> String
  ) {
    (self.takes, self.form, self.read, self.show) = (takes, form, read, show)
    self.isSecret = isSecret
  }

  /// Of a scalar: `parse` gives the value or says what is wrong with it.
  ///
  /// - Parameter mention: how its text may stand in a message.
  init(
    _ takes: String, form: TextForm,
    mention: @escaping @Sendable (String) -> String = { $0 },
    parse: @escaping @Sendable (Scalar) -> Parsed<Value>,
    show: @escaping @Sendable (Value) -> String
  ) {
    self.init(takes, form: form) { node, complaints in
      guard let scalar = node.scalar else {
        let found = node.sequence == nil ? "a mapping" : "a list"
        complaints.append(Complaint(location: node.location, message: "\(found) is not \(takes)"))
        return nil
      }
      switch parse(scalar) {
      case .value(let value): return value
      case .wrong(let why):
        let safe = Scalar(mention(scalar.text), style: scalar.style, tag: scalar.tag)
        let message = "\(shown(safe)) \(why)"
        complaints.append(Complaint(location: node.location, message: message))
        return nil
      }
    } show: {
      show($0)
    }
  }
}

/// What became of a scalar.
enum Parsed<Value> {
  case value(Value)
  /// What is wrong with it, as the end of a sentence that begins with it.
  case wrong(String)
}

/// A value in a message: quoted, without a URL's user and password, and cut when long, for it may be anything.
func shown(_ scalar: Scalar) -> String {
  if scalar.kind == .null { return "null" }
  let text = scalar.text.contains("://") ? AddressText.hidingCredentials(scalar.text) : scalar.text
  let limit = 60
  return "\"" + (text.count > limit ? text.prefix(limit) + "…" : text) + "\""
}

extension ValueFormat {
  /// Null is a value too.
  /// - Parameter word: what it is also called.
  static func optional<Wrapped>(
    _ wrapped: ValueFormat<Wrapped>, named word: String? = nil
  ) -> ValueFormat where Value == Wrapped? {
    let takes = word.map { "\($0) or \(wrapped.takes)" } ?? wrapped.takes
    return ValueFormat(takes, form: wrapped.form) { node, complaints in
      guard let scalar = node.scalar, scalar.kind == .null || scalar.text == word else {
        return wrapped.read(node, &complaints).map { .some($0) }
      }
      return .some(nil)
    } show: { value in
      value.map(wrapped.show) ?? word ?? "null"
    }
  }

  /// Any number of them, or at least `minimum`.
  static func list<Element>(_ element: ValueFormat<Element>, minimum: Int = 0) -> ValueFormat
  where Value == [Element] {
    ValueFormat("a list, each \(element.takes)", form: .list(element.form)) { node, complaints in
      guard let nodes = node.sequence else {
        let found = element.isSecret ? "what stands here" : node.scalar.map(shown) ?? "a mapping"
        complaints.append(Complaint(location: node.location, message: "\(found) is not a list"))
        return nil
      }
      guard nodes.count >= minimum else {
        complaints.append(Complaint(location: node.location, message: "must not be empty"))
        return nil
      }
      return readAll(nodes, element, &complaints)
    } show: { values in
      "[" + values.map(element.show).joined(separator: ", ") + "]"
    }
  }
}

private func readAll<Element>(
  _ nodes: [Node], _ element: ValueFormat<Element>, _ complaints: inout [Complaint]
) -> [Element]? {
  var values: [Element] = []
  for (index, node) in nodes.enumerated() {
    var own: [Complaint] = []
    if let value = element.read(node, &own) { values.append(value) }
    complaints += own.map {
      Complaint(location: $0.location, inner: "[\(index)]" + $0.inner, message: $0.message)
    }
  }
  return values.count == nodes.count ? values : nil
}
