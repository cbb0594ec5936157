/// Names of files, made from URLs and media types, which are not trusted.
enum FileName {
  /// The media types of images, and the file extension of each, without its dot.
  static let types: KeyValuePairs = [
    "image/jpeg": "jpg", "image/png": "png", "image/webp": "webp", "image/gif": "gif",
    "image/avif": "avif", "image/jxl": "jxl", "image/heic": "heic",
    "image/vnd.microsoft.icon": "ico",
  ]
  static let endings = types.map(\.value)

  /// Returns the file extension for a media type, without its dot. The URL's own extension is never
  /// used, so that a server cannot make the client write an executable file, for example.
  static func ending(of type: String?) -> String {
    let essence = (type ?? "").prefix { $0 != ";" }.lowercased()
    return types.first { $0.key == essence }?.value ?? "bin"
  }

  /// Converts a part of a URL to a part of a file name.
  ///
  /// Letters, marks and digits of all scripts and `_` are kept, and `.` and `-` except at the start.
  /// Each run of other characters becomes one `-`. This removes characters that are special in a shell
  /// or a path, move a cursor or change the direction of text.
  ///
  /// - Parameters:
  ///   - text: The text, percent-encoded or not.
  ///   - limit: The length of the result in bytes, at most.
  static func part(_ text: Substring.UTF8View, atMost limit: Int) -> String {
    var name = ""
    var isGap = false
    for scalar in String(decoding: percentDecoded(text), as: UTF8.self).unicodeScalars {
      guard isKept(scalar, atStart: name.isEmpty) else {
        isGap = !name.isEmpty
        continue
      }
      let piece = (isGap ? "-" : "") + String(scalar)
      guard name.utf8.count + piece.utf8.count <= limit else { break }
      name += piece
      isGap = false
    }
    return name
  }

  /// Returns the beginning of a text, at most `limit` bytes, cut between Unicode scalars.
  static func cut(_ text: String, to limit: Int) -> String {
    var bytes = 0
    return String(
      String.UnicodeScalarView(
        text.unicodeScalars.prefix {
          bytes += UTF8.width($0)
          return bytes <= limit
        }))
  }

  private static func percentDecoded(_ text: Substring.UTF8View) -> [UInt8] {
    func digit(_ byte: UInt8?) -> UInt8? {
      byte.flatMap { Character(Unicode.Scalar($0)).hexDigitValue }.map(UInt8.init)
    }
    var bytes: [UInt8] = []
    var rest = text
    while let byte = rest.popFirst() {
      if byte == UInt8(ascii: "%"), let high = digit(rest.first),
        let low = digit(rest.dropFirst().first)
      {
        bytes.append(high << 4 | low)
        rest = rest.dropFirst(2)
      } else {
        bytes.append(byte)
      }
    }
    return bytes
  }

  private static func isKept(_ scalar: Unicode.Scalar, atStart isStart: Bool) -> Bool {
    switch scalar.properties.generalCategory {
    case .uppercaseLetter, .lowercaseLetter, .titlecaseLetter, .modifierLetter, .otherLetter,
      .decimalNumber, .letterNumber, .otherNumber:
      return true
    // A mark needs a letter before it.
    case .nonspacingMark, .spacingMark, .enclosingMark: return !isStart
    default: break
    }
    switch scalar {
    case "_": return true
    // At the start of a name they would hide the file or make it look like a command's option.
    case ".", "-": return !isStart
    // Zero-width non-joiner and joiner: some scripts need them.
    case "\u{200C}", "\u{200D}": return !isStart
    default: return false
    }
  }

  /// Returns the name with a number, for example `cat-2.jpg` for `cat.jpg`. Used if the name exists.
  static func numbered(_ name: String, _ number: Int) -> String {
    guard number > 1 else { return name }
    let dot = name.lastIndex(of: ".") ?? name.endIndex
    return "\(name[..<dot])-\(number)\(name[dot...])"
  }

  /// Returns a display name while only the URL is known: the last part of its path.
  static func shown(of url: String) -> String {
    let path = url.prefix { $0 != "?" && $0 != "#" }
    let name = path.split(separator: "/").last.map(String.init) ?? url
    return PlainText.columns(name.isEmpty ? url : name, atMost: 64)
  }
}

/// Finds a free number when the numbers from 1 on are used in order. Needs few checks: it doubles the
/// number until one is free, then searches between. If numbers in between were freed, the result may
/// not be the lowest.
enum FreeNumber {
  /// - Returns: Nil if no number up to 2^30 is free.
  static func find(_ isFree: (Int) -> Bool) -> Int? {
    var taken = 0
    var free = 1
    while !isFree(free) {
      taken = free
      free *= 2
      guard free <= 1 << 30 else { return nil }
    }
    while free - taken > 1 {
      let middle = taken + (free - taken) / 2
      if isFree(middle) { free = middle } else { taken = middle }
    }
    return free
  }
}
