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
