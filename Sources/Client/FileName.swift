/// Names of files, made of what others say.
enum FileName {
  /// Those of all formats, without their dots.
  static let endings = ["jpg", "png", "webp", "gif", "avif", "jxl", "heic", "bmp", "ico"]

  /// The ending of a file of that media type, without its dot. It never comes from the URL, so that no server can have a
  /// file named as a program.
  static func ending(of type: String?) -> String {
    let essence = (type ?? "").prefix { $0 != ";" }.lowercased()
    let endings = [
      "image/jpeg": "jpg", "image/png": "png", "image/webp": "webp", "image/gif": "gif",
      "image/avif": "avif", "image/jxl": "jxl", "image/heic": "heic",
      "image/bmp": "bmp", "image/vnd.microsoft.icon": "ico",
    ]
    return endings[essence] ?? "bin"
  }

  /// A part of a URL as a part of a file's name: letters, marks and digits of all scripts, `_`, and inside `.` and `-`. Each
  /// run of other characters is one `-`: what means something to a shell or a path, and what moves a cursor or changes the
  /// direction of text.
  /// - Parameters:
  ///   - text: percent-encoded or not.
  ///   - limit: in bytes.
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

  /// The beginning of a text, in whole characters of Unicode.
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
    // A mark belongs to a letter before it.
    case .nonspacingMark, .spacingMark, .enclosingMark: return !isStart
    default: break
    }
    switch scalar {
    case "_": return true
    // First in a name they would hide a file or make an option of it.
    case ".", "-": return !isStart
    // Zero-width non-joiner and joiner: some scripts are spelled with them.
    case "\u{200C}", "\u{200D}": return !isStart
    default: return false
    }
  }

  /// `cat.jpg` as `cat-2.jpg`, for a name that is taken.
  static func numbered(_ name: String, _ number: Int) -> String {
    guard number > 1 else { return name }
    let dot = name.lastIndex(of: ".") ?? name.endIndex
    return "\(name[..<dot])-\(number)\(name[dot...])"
  }

  /// What an image is called while only its URL is known: the last part of the path.
  static func shown(of url: String) -> String {
    let path = url.prefix { $0 != "?" && $0 != "#" }
    let name = path.split(separator: "/").last.map(String.init) ?? url
    return PlainText.columns(name.isEmpty ? url : name, atMost: 64)
  }
}

/// Finds a number that is free where those from 1 on are taken one after the other, by few looks: it doubles until one is
/// free, then halves. Where numbers between were freed it may find a higher one than need be.
enum FreeNumber {
  /// - Returns: nil where none is free up to a thousand million.
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
