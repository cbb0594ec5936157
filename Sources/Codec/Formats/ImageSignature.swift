internal import Jobs

/// The format that the first bytes of a file show.
enum ImageSignature: Equatable {
  /// A supported format.
  case decodable(ImageFormat)
  /// Another format, with its name if it is known.
  case other(name: String?)
  /// More bytes are needed.
  case undecided
  /// The bytes end within the signature of a supported format.
  case cutShort

  /// How many bytes are inspected at most.
  static let length = 256

  /// - Parameter isWhole: whether no more bytes will arrive.
  init(of bytes: UnsafeBufferPointer<UInt8>, isWhole: Bool) {
    let start = Array(bytes.prefix(Self.length))
    if let format = ImageFormat.allCases.first(where: { $0.traits.signature.matches(start) }) {
      self = .decodable(format)
    } else if start.count < Self.length, !isWhole {
      // A name is given only once all these bytes are present, so that it does not depend on how the bytes arrive.
      self = .undecided
    } else if !start.isEmpty,
      ImageFormat.allCases.contains(where: { $0.traits.signature.isBegun(start) })
    {
      self = .cutShort
    } else {
      self = .other(name: KnownFormat.name(start))
    }
  }
}

/// Recognizes a format by the first bytes of a file. Each reader's file has the signature of its format.
struct FormatSignature: Sendable {
  /// Whether these first bytes are a file of the format.
  let matches: @Sendable ([UInt8]) -> Bool
  /// Whether these bytes are too few for a signature but could be the start of one.
  let isBegun: @Sendable ([UInt8]) -> Bool

  /// Matches any of several fixed beginnings.
  /// - Parameter least: with fewer bytes, `isBegun` is false, because they could begin any format.
  init(_ beginnings: [[UInt8]], least: Int = 1) {
    matches = { start in beginnings.contains(where: start.starts) }
    isBegun = { start in start.count >= least && beginnings.contains { $0.starts(with: start) } }
  }

  init(
    matches: @escaping @Sendable ([UInt8]) -> Bool, isBegun: @escaping @Sendable ([UInt8]) -> Bool
  ) {
    (self.matches, self.isBegun) = (matches, isBegun)
  }
}

/// Unsupported formats, recognized only to name them in an error.
enum KnownFormat {
  /// Bytes that a format's files have at an offset.
  private struct Magic {
    var name: String
    var offset: Int
    var bytes: [UInt8]

    init(_ name: String, _ bytes: [UInt8], at offset: Int = 0) {
      self.name = name
      self.bytes = bytes
      self.offset = offset
    }

    init(_ name: String, _ text: String, at offset: Int = 0) {
      self.init(name, Array(text.utf8), at: offset)
    }

    func matches(_ start: [UInt8]) -> Bool { start.dropFirst(offset).starts(with: bytes) }
  }

  /// Ordered by reliability: more specific signatures first.
  private static let magics: [Magic] = [
    Magic("JPEG-LS", [0xFF, 0xD8, 0xFF, 0xF7]),
    Magic("TIFF", [0x49, 0x49, 42, 0]), Magic("TIFF", [0x4D, 0x4D, 0, 42]),
    Magic("TIFF", [0x49, 0x49, 43, 0]), Magic("TIFF", [0x4D, 0x4D, 0, 43]),
    Magic("CUR", [0, 0, 2, 0]),
    Magic("JPEG 2000", [0, 0, 0, 12, 0x6A, 0x50, 0x20, 0x20, 0x0D, 0x0A, 0x87, 0x0A]),
    Magic("JPEG 2000", [0xFF, 0x4F, 0xFF, 0x51]),
    Magic("JPEG XR", [0x49, 0x49, 0xBC]),
    Magic("MNG", [0x8A, 0x4D, 0x4E, 0x47]), Magic("JNG", [0x8B, 0x4A, 0x4E, 0x47]),
    Magic("PSD", "8BPS"), Magic("PDF", "%PDF-"), Magic("PostScript", "%!PS"),
    Magic("XCF", "gimp xcf"), Magic("QOI", "qoif"), Magic("FLIF", "FLIF"),
    Magic("BPG", "BPG\u{7F}"),
    Magic("DDS", "DDS "), Magic("OpenEXR", [0x76, 0x2F, 0x31, 0x01]),
    Magic("Radiance HDR", "#?RADIANCE"), Magic("farbfeld", "farbfeld"), Magic("FITS", "SIMPLE  ="),
    Magic("DjVu", "AT&TFORM"), Magic("Flash", "FWS"), Magic("Flash", "CWS"),
    Magic("Matroska", [0x1A, 0x45, 0xDF, 0xA3]), Magic("MPEG", [0, 0, 1, 0xBA]),
    Magic("Ogg", "OggS"), Magic("MP3", "ID3"), Magic("FLAC", "fLaC"), Magic("WOFF", "wOF"),
    Magic("ZIP", [0x50, 0x4B, 3, 4]), Magic("ZIP", [0x50, 0x4B, 5, 6]),
    Magic("gzip", [0x1F, 0x8B]),
    Magic("bzip2", "BZh"), Magic("xz", [0xFD, 0x37, 0x7A, 0x58, 0x5A, 0]),
    Magic("Zstandard", [0x28, 0xB5, 0x2F, 0xFD]),
    Magic("7z", [0x37, 0x7A, 0xBC, 0xAF, 0x27, 0x1C]),
    Magic("RAR", "Rar!\u{1A}"),
    Magic("ELF", [0x7F, 0x45, 0x4C, 0x46]), Magic("BMP", "BM"),
  ]

  /// The format's name, or nil if it is not known.
  static func name(_ start: [UInt8]) -> String? {
    magics.first { $0.matches(start) }?.name ?? riff(start) ?? isoMedia(start) ?? text(start)
  }

  private static func riff(_ start: [UInt8]) -> String? {
    guard start.starts(with: "RIFF".utf8) else { return nil }
    switch String(decoding: start.dropFirst(8).prefix(4), as: UTF8.self) {
    case "WAVE": return "WAV"
    case "AVI ": return "AVI"
    default: return "RIFF"
    }
  }

  private static func isoMedia(_ start: [UInt8]) -> String? { ISOMediaBrands(start)?.name }

  /// Recognizes markup and data formats by their first characters. White space and a byte order mark at the start are
  /// ignored.
  private static func text(_ start: [UInt8]) -> String? {
    let body = start.starts(with: [0xEF, 0xBB, 0xBF]) ? start.dropFirst(3) : start[...]
    let text = String(decoding: body.drop { $0 <= 0x20 }, as: UTF8.self).lowercased()
    if text.hasPrefix("<") {
      if text.contains("<svg") { return "SVG" }
      let isHTML = [
        "<!doctype html", "<html", "<head", "<body", "<script", "<title", "<div", "<p>",
      ]
      .contains { text.contains($0) }
      return isHTML ? "HTML" : text.hasPrefix("<?xml") ? "XML" : nil
    }
    if text.hasPrefix("{\"") || text.hasPrefix("[{") { return "JSON" }
    return nil
  }
}

/// The brands that an ISO 14496-12 file declares. Its first box, "ftyp", has a major brand, a version and compatible
/// brands. Only brands within the first ``ImageSignature/length`` bytes are read, however long the box is.
struct ISOMediaBrands {
  private let major: String
  private let compatible: Set<String>

  /// Returns nil if the bytes don't start with such a box or end before the brands.
  init?(_ start: [UInt8]) {
    guard start.count >= 12, start[4..<8].elementsEqual("ftyp".utf8) else { return nil }
    let size = start[..<4].reduce(0) { $0 << 8 | Int($1) }
    let end = min(max(size, 16), start.count, ImageSignature.length)
    major = String(decoding: start[8..<12], as: UTF8.self)
    compatible = Set(
      stride(from: 16, through: end - 4, by: 4).map {
        String(decoding: start[$0..<$0 + 4], as: UTF8.self)
      })
  }

  /// An AVIF image or sequence. A file whose major brand is HEIC counts as HEIC, whatever its compatible brands are.
  var isAVIF: Bool { has(["avif", "avis"]) && !Self.hevc.contains(major) }

  /// A HEIC image or sequence.
  var isHEIC: Bool { !isAVIF && has(Self.hevc) }

  /// The format's usual name.
  var name: String {
    if isAVIF { return "AVIF" }
    if isHEIC { return "HEIC" }
    if has(["mif1", "msf1"]) { return "HEIF" }
    return major == "qt  " ? "QuickTime" : "MP4"
  }

  private static let hevc: Set = ["heic", "heix", "heim", "heis", "hevc", "hevx", "hevm", "hevs"]

  private func has(_ brands: Set<String>) -> Bool {
    brands.contains(major) || !compatible.isDisjoint(with: brands)
  }
}
