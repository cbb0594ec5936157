internal import Contract
internal import YAML

extension OpenAPIDocument {
  /// The same document as JSON, for tools that do not read YAML. Converted on first use.
  static let json: [UInt8] = {
    var text: [UInt8] = []
    // A test ensures that the document can be parsed.
    if let root = Document(reading: bytes).root { root.write(to: &text) }
    return text
  }()
}

extension Node {
  /// Appends the node in JSON.
  fileprivate func write(to text: inout [UInt8]) {
    switch content {
    case .sequence(let nodes):
      text.append(UInt8(ascii: "["))
      for (index, node) in nodes.enumerated() {
        if index > 0 { text.append(UInt8(ascii: ",")) }
        node.write(to: &text)
      }
      text.append(UInt8(ascii: "]"))
    case .mapping(let pairs):
      text.append(UInt8(ascii: "{"))
      for (index, pair) in pairs.enumerated() {
        if index > 0 { text.append(UInt8(ascii: ",")) }
        pair.key.writeJSON(to: &text)
        text.append(UInt8(ascii: ":"))
        pair.value.write(to: &text)
      }
      text.append(UInt8(ascii: "}"))
    case .scalar(let scalar):
      switch scalar.kind {
      case .null: text += "null".utf8
      case .boolean: text += scalar.text.lowercased().utf8
      // The document contains only decimal numbers, which have the same form in JSON.
      case .integer, .float: text += scalar.text.utf8
      case .string: scalar.text.writeJSON(to: &text)
      }
    }
  }
}

extension String {
  /// Appends the text as a JSON string.
  fileprivate func writeJSON(to text: inout [UInt8]) {
    text.append(UInt8(ascii: "\""))
    for byte in utf8 {
      switch byte {
      case UInt8(ascii: "\""), UInt8(ascii: "\\"): text += [UInt8(ascii: "\\"), byte]
      case 0x0A: text += #"\n"#.utf8
      case 0..<0x20:
        let digits = Array("0123456789abcdef".utf8)
        text += #"\u00"#.utf8
        text += [digits[Int(byte >> 4)], digits[Int(byte & 15)]]
      default: text.append(byte)
      }
    }
    text.append(UInt8(ascii: "\""))
  }
}
