/// The formats that can be decoded, and what every module knows about each of them.
///
/// ``row`` is the one table of them. `FormatListTests` compares the documents that list formats with it, and `RuleTests`
/// the command's file names. `FormatTraits` adds what only the codec knows.
package enum ImageFormat: String, Sendable, CaseIterable, Codable {
  case jpeg, png, webp, gif, avif, jxl, heic, ico

  private struct Row {
    /// The usual name, for people.
    var name: String
    /// The subtype of `image/`; nil if it is the case's name.
    var subtype: String?
    /// The usual file extension; nil if it is the case's name.
    var fileExtension: String?
    /// Whether encoders usually discard details.
    var isLossy = false
    /// Whether the format is accepted by default.
    var isUsual = true
    /// Whether the format is decoded only in a sandboxed decoder process. Either its library has had bugs that execute
    /// foreign code, or it takes time and memory that cannot be known from the header.
    var needsIsolation = false
  }

  private var row: Row {
    switch self {
    case .jpeg: Row(name: "JPEG", fileExtension: "jpg", isLossy: true)
    case .png: Row(name: "PNG")
    case .webp: Row(name: "WebP", isLossy: true)
    case .gif: Row(name: "GIF")
    case .avif: Row(name: "AVIF", isLossy: true)
    case .jxl: Row(name: "JPEG XL", isLossy: true, needsIsolation: true)
    case .heic: Row(name: "HEIC", isLossy: true, needsIsolation: true)
    case .ico: Row(name: "ICO", subtype: "vnd.microsoft.icon", isUsual: false, needsIsolation: true)
    }
  }

  /// The formats accepted by default.
  package static let usual = allCases.filter(\.row.isUsual)
  /// The formats accepted only if `decode.formats` names them.
  package static let optional = allCases.filter { !$0.row.isUsual }
  /// Formats that are decoded only in sandboxed decoder processes.
  package static let needingIsolation = Set(allCases.filter(\.row.needsIsolation))
  /// Formats that may also be decoded in the service's own process.
  package static let decodedAnywhere = Set(allCases.filter { !$0.row.needsIsolation })

  /// The usual name, for people.
  package var name: String { row.name }
  /// The media type in responses.
  package var contentType: String { "image/" + (row.subtype ?? rawValue) }
  /// The usual file extension, without the dot.
  package var fileExtension: String { row.fileExtension ?? rawValue }
  /// Whether encoders usually discard details. A PNG of such an image would be many times larger and no better.
  package var isLossy: Bool { row.isLossy }
}

extension Collection<ImageFormat> {
  /// The names as a phrase in the table's order, for example `JPEG, PNG and WebP`.
  package var phrase: String {
    let names = ImageFormat.allCases.filter(contains).map(\.name)
    guard names.count > 1 else { return names.joined() }
    return names.dropLast().joined(separator: ", ") + " and " + names[names.count - 1]
  }
}
