/// A destination for a job's image or for one of its variants. The delivery is made before the job succeeds.
package struct DeliveryRequest: Sendable, Equatable, Codable {
  /// The maximum for one job.
  package static let most = 4

  /// The destination.
  package enum Target: Sendable, Equatable, Codable {
    /// A presigned URL, and the header fields that were signed with it.
    case put(SourceURL, headers: [HeaderField])
    /// The name of a destination in the configuration.
    case profile(String, key: DeliveryKey)
  }

  package var target: Target
  /// The name of the variant to deliver; nil for the original.
  package var variant: String?

  package init(_ target: Target, variant: String?) {
    (self.target, self.variant) = (target, variant)
  }
}

/// A delivery that was made.
package struct Delivered: Sendable, Equatable, Codable {
  /// The destination's name; nil if the target was a URL.
  package var destination: String?
  /// The URL without its query, which may contain secrets.
  package var url: String?
  /// The object's key at the destination.
  package var key: String?
  /// The name of the variant; nil for the original.
  package var variant: String?
  /// The number of bytes delivered.
  package var bytes: Int
  /// The entity tag that the receiver returned.
  package var entityTag: String?

  package init(_ request: DeliveryRequest, key: String?, bytes: Int, entityTag: String?) {
    switch request.target {
    case .put(let url, _):
      self.url = url.origin + url.pathAndQuery.prefix { $0 != "?" }
    case .profile(let name, _): destination = name
    }
    (variant, self.key, self.bytes, self.entityTag) = (request.variant, key, bytes, entityTag)
  }
}

/// Bytes to upload to a destination.
package struct DeliveryUpload: Sendable {
  package enum Target: Sendable, Equatable {
    case put(SourceURL, headers: [HeaderField])
    /// - Parameter key: The key below the destination's prefix. It cannot lead out of the prefix.
    case profile(String, key: String)

    /// The name that clients see.
    package var name: String {
      switch self {
      case .put(let url, _): url.authority
      case .profile(let name, _): name
      }
    }
  }

  package var target: Target
  /// The owner of the job; nil for the service itself.
  package var owner: Owner?
  package var content: StoredBytes
  /// The digest of the bytes.
  package var digest: ImageDigest
  /// The media type of the bytes.
  package var contentType: String

  package init(
    to target: Target, _ content: StoredBytes, digest: ImageDigest, contentType: String
  ) {
    (self.target, self.content) = (target, content)
    (self.digest, self.contentType) = (digest, contentType)
  }
}

/// Uploads bytes to destinations.
package protocol ImageDestinations: Sendable {
  /// Stores the bytes at the destination and replaces an existing object. Makes up to three attempts after
  /// transient errors.
  ///
  /// - Returns: The entity tag that the receiver returned, if any.
  /// - Throws: `.cancelled` if the calling task is cancelled.
  func deliver(_ parcel: DeliveryUpload) async throws(DeliveryError) -> String?
}

/// The name of a delivered object: a path with placeholders.
///
/// A key cannot lead out of its destination's prefix. After the values are inserted, no part of it is empty,
/// `.` or `..`, and values contain no slash.
package struct DeliveryKey: Sendable, Equatable, Codable {
  /// The names allowed in braces.
  package enum Placeholder: String, CaseIterable, Sendable {
    case id, tag, sha256, ext, line, name, host
  }

  /// S3's limit, in bytes.
  package static let longest = 1_024

  /// The template as the client sent it.
  package let template: String

  /// Parses a template. Returns nil if it has unknown placeholders, empty parts, `.` or `..` as a part, a
  /// backslash, control characters, or more than ``longest`` bytes.
  package init?(_ template: String) {
    self.template = template
    guard 1...Self.longest ~= template.utf8.count,
      !template.unicodeScalars.contains(where: { $0.value < 0x20 || 0x7F..<0xA0 ~= $0.value }),
      !template.utf8.contains(UInt8(ascii: "\\")), Self.parts(of: template) != nil,
      !Self.split(template).contains(where: Self.isRelative)
    else { return nil }
  }

  /// The default template.
  package init(forVariant isVariant: Bool) {
    template = isVariant ? "{id}-{name}.{ext}" : "{id}.{ext}"
  }

  /// Inserts the values of the placeholders.
  /// - Parameter value: Returns the value of a placeholder; nil or an empty value becomes `_`.
  /// - Returns: The key; nil if it is longer than ``longest``.
  package func filled(_ value: (Placeholder) -> String?) -> String? {
    let text = (Self.parts(of: template) ?? []).map { part in
      switch part {
      case .text(let text): text
      case .placeholder(let placeholder): Self.tamed(value(placeholder) ?? "")
      }
    }.joined()
    let key = Self.split(text).map { Self.isRelative($0) ? "_" : $0 }.joined(separator: "/")
    return key.utf8.count <= Self.longest ? key : nil
  }

  /// Splits by bytes, because a slash and a combining mark after it form one `Character`.
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

  /// Returns nil for an unmatched brace or an unknown placeholder.
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

  /// Replaces slashes, backslashes and control characters, so that the value fits into one part of a path.
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
  /// Returns the key of a delivery of the job's image; nil if it is too long.
  /// - Parameters:
  ///   - digest: The digest of the delivered bytes.
  ///   - ending: The file extension, without the dot.
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
