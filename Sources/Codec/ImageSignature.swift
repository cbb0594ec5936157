internal import Jobs

/// What the first bytes tell about a file's format.
enum ImageSignature: Equatable {
  /// A format of ours.
  case decodable(ImageFormat)
  /// Another one; its name where it is known.
  case other(name: String?)
  /// More bytes will tell.
  case undecided
  /// The bytes end within a signature of ours.
  case cutShort

  /// As many bytes as are ever looked at.
  static let length = 256

  /// - Parameter isWhole: no more bytes will come.
  init(of bytes: UnsafeBufferPointer<UInt8>, isWhole: Bool) {
    let start = Array(bytes.prefix(Self.length))
    if let format = Self.decodable(start) {
      self = .decodable(format)
    } else if start.count < Self.length, !isWhole {
      // Names are told only with all the bytes that count, so that they don't depend on how bytes arrive.
      self = .undecided
    } else if !start.isEmpty, Self.isWithinOurs(start) {
      self = .cutShort
    } else {
      self = .other(name: KnownFormat.name(start))
    }
  }

  private static let jpeg: [UInt8] = [0xFF, 0xD8, 0xFF]
  private static let png: [UInt8] = [0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A]

  private static let gifs = ["GIF87a", "GIF89a"].map { Array($0.utf8) }
  private static let riff = Array("RIFF".utf8)
  private static let webp = Array("WEBP".utf8)

  private static func decodable(_ start: [UInt8]) -> ImageFormat? {
    // The fourth byte is the first marker: JPEG-LS differs there.
    if start.count > 3, start.starts(with: jpeg) { return start[3] == 0xF7 ? nil : .jpeg }
    if start.starts(with: png) { return .png }
    if gifs.contains(where: start.starts(with:)) { return .gif }
    if start.starts(with: riff), start.dropFirst(8).starts(with: webp) { return .webp }
    return ISOMediaBrands(start)?.isAVIF == true ? .avif : nil
  }

  private static func isWithinOurs(_ start: [UInt8]) -> Bool {
    ([jpeg, png] + gifs).contains { $0.starts(with: start) } || isWithinWebP(start)
      || isWithinAVIF(start)
  }

  /// Four bytes between the two words are the file's length.
  private static func isWithinWebP(_ start: [UInt8]) -> Bool {
    riff.starts(with: start.prefix(4)) && start.count < 12 && webp.starts(with: start.dropFirst(8))
  }

  /// The word comes after its box's length, which has 32 bits and is small.
  private static func isWithinAVIF(_ start: [UInt8]) -> Bool {
    (5..<12).contains(start.count) && start.starts(with: [0, 0, 0])
      && Array("ftypavi".utf8).starts(with: start.dropFirst(4))
  }
}
