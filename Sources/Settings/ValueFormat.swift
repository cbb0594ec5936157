package import YAML

/// How the text of an environment variable or a flag is converted to a value.
package enum TextForm: Sendable {
  /// A plain YAML scalar; empty means null.
  case plain
  /// Literal text; empty means null.
  case text
  /// Items separated by commas, each in the given form.
  indirect case list(TextForm)
  /// YAML in flow or block style.
  case yaml

  /// Converts the text to a node.
  ///
  /// - Throws: `YAMLError` if the form is YAML and the text is not valid.
  package func node(of text: String) throws(YAMLError) -> Node {
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
  /// Removes matching characters from both ends.
  package func trimming(while matches: (Character) -> Bool) -> Substring {
    var rest = drop(while: matches)
    while let last = rest.last, matches(last) { rest.removeLast() }
    return rest
  }
}

/// The format of a key's value: how it is read, validated and printed.
package struct ValueFormat<Value: Sendable>: Sendable {
  /// A description of the allowed values, such as `1ms…10m`.
  package let allowedValues: String
  let form: TextForm
  /// Returns the value, or nil and at least one complaint.
  package let read: @Sendable (Node, inout [Complaint]) -> Value?
  /// The value in YAML's flow style.
  package let show: @Sendable (Value) -> String
  /// Whether messages must not show the value. A mistyped or misplaced secret must not be shown either.
  let isSecret: Bool

  package init(
    _ takes: String, form: TextForm, isSecret: Bool = false,
    read: @escaping @Sendable (Node, inout [Complaint]) -> Value?,
    show: @escaping @Sendable (Value) -> String
  ) {
    (self.allowedValues, self.form, self.read, self.show) = (takes, form, read, show)
    self.isSecret = isSecret
  }

  /// The format of a scalar. `parse` returns the value or what is wrong with it.
  ///
  /// - Parameter mention: replaces the secret parts of the text in messages.
  package init(
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

/// The result of parsing a scalar.
package enum Parsed<Value> {
  case value(Value)
  /// The end of an error message that starts with the scalar, such as `is not a number`.
  case wrong(String)
}

/// A value in a message: quoted, without the user and password of a URL, and cut after 60 characters.
func shown(_ scalar: Scalar) -> String {
  if scalar.kind == .null { return "null" }
  let text = scalar.text.contains("://") ? AddressText.hidingCredentials(scalar.text) : scalar.text
  let limit = 60
  return "\"" + (text.count > limit ? text.prefix(limit) + "…" : text) + "\""
}

extension ValueFormat {
  /// A value or null.
  /// - Parameter word: another name for null, such as `sqlite`.
  package static func optional<Wrapped>(
    _ wrapped: ValueFormat<Wrapped>, named word: String? = nil
  ) -> ValueFormat where Value == Wrapped? {
    let takes = word.map { "\($0) or \(wrapped.allowedValues)" } ?? wrapped.allowedValues
    return ValueFormat(takes, form: wrapped.form) { node, complaints in
      guard let scalar = node.scalar, scalar.kind == .null || scalar.text == word else {
        return wrapped.read(node, &complaints).map { .some($0) }
      }
      return .some(nil)
    } show: { value in
      value.map(wrapped.show) ?? word ?? "null"
    }
  }

  /// Another type with the same text: `convert` accepts every value that this format accepts.
  package func converted<Other>(
    to convert: @escaping @Sendable (Value) -> Other?,
    from back: @escaping @Sendable (Other) -> Value
  ) -> ValueFormat<Other> {
    ValueFormat<Other>(allowedValues, form: form, isSecret: isSecret) { node, complaints in
      read(node, &complaints).flatMap(convert)
    } show: {
      show(back($0))
    }
  }

  /// An array with at least `minimum` elements.
  package static func list<Element>(_ element: ValueFormat<Element>, minimum: Int = 0)
    -> ValueFormat
  where Value == [Element] {
    ValueFormat("a list, each \(element.allowedValues)", form: .list(element.form)) {
      node, complaints in
      guard let nodes = node.sequence else {
        let found = element.isSecret ? "the value" : node.scalar.map(shown) ?? "a mapping"
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
