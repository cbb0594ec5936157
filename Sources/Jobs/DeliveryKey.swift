/// How an object is to be called: a path with placeholders.
///
/// Whatever stands in for these, the key stays below its destination's prefix: none of its parts is empty, `.` or `..`, and
/// no value brings a slash along.
public struct DeliveryKey: Sendable, Equatable, Codable {
  /// What may stand in braces.
  public enum Placeholder: String, CaseIterable, Sendable {
    case id, tag, sha256, ext, line, name, host
  }

  /// S3's limit, in bytes.
  public static let longest = 1_024

  /// As the client gave it.
  public let template: String

  /// Reads a template; nil for one with other placeholders, with empty parts, `.` or `..`, or with control characters.
  public init?(_ template: String) {
    self.template = template
    guard 1...Self.longest ~= template.utf8.count,
      !template.unicodeScalars.contains(where: { $0.value < 0x20 || 0x7F..<0xA0 ~= $0.value }),
      !template.utf8.contains(UInt8(ascii: "\\")), Self.parts(of: template) != nil,
      !Self.split(template).contains(where: Self.isRelative)
    else { return nil }
  }

  /// What it is without a word of the client's.
  public init(forVariant isVariant: Bool) {
    template = isVariant ? "{id}-{name}.{ext}" : "{id}.{ext}"
  }

  /// The key.
  /// - Parameter value: what stands in for a placeholder; nil: nothing is known, which is `_`.
  /// - Returns: nil where it would be too long.
  public func filled(_ value: (Placeholder) -> String?) -> String? {
    let text = (Self.parts(of: template) ?? []).map { part in
      switch part {
      case .text(let text): text
      case .placeholder(let placeholder): Self.tamed(value(placeholder) ?? "")
      }
    }.joined()
    let key = Self.split(text).map { Self.isRelative($0) ? "_" : $0 }.joined(separator: "/")
    return key.utf8.count <= Self.longest ? key : nil
  }

  /// By bytes: a slash and a mark that combines with it are one Character, and two of a path's.
  private static func split(_ path: String) -> [Substring] {
    path.utf8.split(separator: UInt8(ascii: "/"), omittingEmptySubsequences: false)
      .map(Substring.init)
  }

  private static func isRelative(_ part: Substring) -> Bool {
    part.utf8.isEmpty || part.utf8.elementsEqual(".".utf8) || part.utf8.elementsEqual("..".utf8)
  }

  private enum Part {
    case text(String)
    case placeholder(Placeholder)
  }

  /// Nil where a brace has no other one, or what is between is no placeholder.
  private static func parts(of template: String) -> [Part]? {
    var parts: [Part] = []
    var rest = template[...]
    while let open = rest.firstIndex(of: "{") {
      let text = rest[..<open]
      guard !text.contains("}"), let close = rest[open...].firstIndex(of: "}"),
        let placeholder = Placeholder(rawValue: String(rest[rest.index(after: open)..<close]))
      else { return nil }
      parts += [.text(String(text)), .placeholder(placeholder)]
      rest = rest[rest.index(after: close)...]
    }
    return rest.contains("}") ? nil : parts + [.text(String(rest))]
  }

  /// A value as one part of a path may have it.
  private static func tamed(_ value: String) -> String {
    if value.isEmpty { return "_" }
    return String(
      String.UnicodeScalarView(
        value.unicodeScalars.map { scalar in
          let isUnsafe = scalar.value < 0x20 || 0x7F..<0xA0 ~= scalar.value
          return isUnsafe || scalar == "/" || scalar == "\\" ? "_" : scalar
        }))
  }
}

extension Job {
  /// What a delivery of its image is called.
  /// - Parameters:
  ///   - digest: of what is delivered.
  ///   - ending: that of a file of it.
  package func key(
    _ key: DeliveryKey, of digest: ImageDigest, ending: String, variant: String?
  ) -> String? {
    key.filled { placeholder in
      switch placeholder {
      case .id: id.description
      case .tag: tags.first
      case .sha256: digest.hex
      case .ext: ending
      case .line: batch.map { "\($0.line)" }
      case .name: variant ?? "original"
      case .host: submission.url(of: .regular)?.host
      }
    }
  }
}
