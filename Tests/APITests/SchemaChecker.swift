import FoundationEssentials
import Testing
import YAML

/// Checks JSON against the part of JSON Schema 2020-12 that `openapi.yaml` uses. An unknown keyword is an error, so
/// that everything in the document is checked.
///
/// A member without a property is an error too. Clients must accept new members, but the members sent today must all be
/// described.
struct SchemaChecker {
  let document: JSON

  init(_ node: Node) { document = JSON(node) }

  /// The errors, each with its place.
  func mistakes(in value: JSON, schema: JSON, at place: String = "") -> [String] {
    guard let keywords = schema.object else { return ["\(place): no schema"] }
    return keywords.flatMap { keyword, rule in
      mistakes(in: value, keyword, rule, keywords, at: place)
    }
  }

  /// Resolves a reference.
  func resolve(_ schema: JSON?) -> JSON? {
    guard let reference = schema?["$ref"]?.string else { return schema }
    return reference.split(separator: "/").dropFirst().reduce(document as JSON?) {
      $0?[String($1)]
    }
  }

  private func mistakes(
    in value: JSON, _ keyword: String, _ rule: JSON, _ all: [String: JSON], at place: String
  ) -> [String] {
    func wrong(_ holds: Bool) -> [String] { holds ? [] : ["\(place): \(keyword) \(rule)"] }
    switch keyword {
    case "description", "format", "default", "examples", "discriminator", "contentMediaType":
      return []
    case "contentSchema":
      guard let text = value.string,
        let content = try? JSONDecoder().decode(JSON.self, from: Data(text.utf8))
      else { return ["\(place): no JSON"] }
      return mistakes(in: content, schema: rule, at: place)
    case "pattern":
      guard let text = value.string else { return [] }
      guard let pattern = try? Regex(rule.string ?? "") else { return ["\(place): no pattern"] }
      return wrong(text.contains(pattern.matchingSemantics(.unicodeScalar)))
    case "$ref":
      return resolve(all.isEmpty ? nil : .object(["$ref": rule])).map {
        mistakes(in: value, schema: $0, at: place)
      } ?? ["\(place): dangling \(rule)"]
    case "type":
      let names = rule.array?.compactMap(\.string) ?? [rule.string ?? ""]
      return wrong(names.contains { value.isOf(type: $0) })
    case "enum": return wrong(rule.array?.contains(value) == true)
    case "const": return wrong(rule == value)
    case "oneOf":
      return wrong(rule.array?.count { mistakes(in: value, schema: $0).isEmpty } == 1)
    case "required":
      guard let object = value.object else { return [] }
      return wrong(rule.array?.allSatisfy { object[$0.string ?? ""] != nil } == true)
    case "properties":
      return (value.object ?? [:]).flatMap { name, member in
        if let schema = rule[name] {
          return mistakes(in: member, schema: schema, at: "\(place)/\(name)")
        }
        return ["\(place)/\(name) is not described"]
      }
    case "additionalProperties":
      let others = (value.object ?? [:]).filter { all["properties"]?[$0.key] == nil }
      if case .bool(let isAllowed) = rule { return wrong(others.isEmpty || isAllowed) }
      return others.flatMap { mistakes(in: $1, schema: rule, at: "\(place)/\($0)") }
    case "items":
      return (value.array ?? []).enumerated().flatMap { index, element in
        mistakes(in: element, schema: rule, at: "\(place)/\(index)")
      }
    case "minItems": return wrong(Double(value.array?.count ?? .max) >= rule.number ?? 0)
    case "maxItems": return wrong(Double(value.array?.count ?? 0) <= rule.number ?? 0)
    case "minLength":
      return wrong(Double(value.string?.unicodeScalars.count ?? .max) >= rule.number ?? 0)
    case "maxLength":
      return wrong(Double(value.string?.unicodeScalars.count ?? 0) <= rule.number ?? 0)
    case "minimum": return wrong((value.number ?? .infinity) >= rule.number ?? 0)
    case "maximum": return wrong((value.number ?? -.infinity) <= rule.number ?? 0)
    default: return ["\(place): the checker does not know \(keyword)"]
    }
  }
}

extension JSON {
  /// Converts a YAML node by YAML's core schema.
  init(_ node: Node) {
    switch node.content {
    case .sequence(let nodes): self = .array(nodes.map { JSON($0) })
    case .mapping(let pairs):
      self = .object(Dictionary(uniqueKeysWithValues: pairs.map { ($0.key, JSON($0.value)) }))
    case .scalar(let scalar):
      switch scalar.kind {
      case .null: self = .null
      case .boolean: self = .bool(scalar.text.lowercased() == "true")
      case .integer, .float: self = .number(Double(scalar.text) ?? .nan)
      case .string: self = .string(scalar.text)
      }
    }
  }

  func isOf(type: String) -> Bool {
    switch self {
    case .null: type == "null"
    case .bool: type == "boolean"
    case .number(let number): type == "number" || (type == "integer" && number == number.rounded())
    case .string: type == "string"
    case .array: type == "array"
    case .object: type == "object"
    }
  }
}
