/// What a file of ISO 14496-12 says that it is: its first box, "ftyp", has a major brand, a version and
/// compatible brands. So many of them are looked at as ``ImageSignature/length`` has room for, however long the box is.
struct ISOMediaBrands {
  private let major: String
  private let compatible: Set<String>

  /// Nil where the bytes don't start with such a box, or end before a brand that would tell.
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

  /// A still picture or a sequence. What says that it is HEIC first is that, whatever else it can be taken for.
  var isAVIF: Bool { has(["avif", "avis"]) && !Self.hevc.contains(major) }

  /// The same in HEVC.
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
