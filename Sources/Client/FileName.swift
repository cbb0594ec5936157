/// Names of files, made of what others say.
enum FileName {
  /// Longest names that are taken as they are; with a number they still fit every file system's 255 bytes.
  private static let maxBytes = 120

  /// Those of all formats, without their dots.
  static let endings = ["jpg", "png", "webp", "gif", "avif", "jxl", "heic", "bmp", "ico"]

  /// The name that the service proposes (`Content-Disposition`), if it is a plain one, else one of ours; it ends as the
  /// media type says, so that no server can have a file named as what others run.
  static func proposed(_ disposition: String?, type: String?) -> String {
    let name = disposition.flatMap(quotedName).flatMap { isPlain($0) ? $0 : nil } ?? "image"
    let stem = name[..<(name.lastIndex(of: ".") ?? name.endIndex)]
    let essence = (type ?? "").prefix { $0 != ";" }.lowercased()
    let endings = [
      "image/jpeg": "jpg", "image/png": "png", "image/webp": "webp", "image/gif": "gif",
      "image/avif": "avif", "image/jxl": "jxl", "image/heic": "heic",
      "image/bmp": "bmp", "image/vnd.microsoft.icon": "ico",
    ]
    return "\(stem)." + (endings[essence] ?? "bin")
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

  private static func quotedName(_ disposition: String) -> String? {
    guard let start = disposition.firstRange(of: "filename=\"")?.upperBound,
      let end = disposition[start...].firstIndex(of: "\"")
    else { return nil }
    return String(disposition[start..<end])
  }

  /// Letters, digits, `-`, `_` and dots inside: nothing that means something to a shell, a path or a terminal.
  private static func isPlain(_ name: String) -> Bool {
    guard 1...maxBytes ~= name.utf8.count, let first = name.utf8.first,
      first != UInt8(ascii: "."), first != UInt8(ascii: "-")
    else { return false }
    return name.utf8.allSatisfy { byte in
      switch byte {
      case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "a")...UInt8(ascii: "z"),
        UInt8(ascii: "A")...UInt8(ascii: "Z"):
        true
      default: "-_.".utf8.contains(byte)
      }
    }
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
