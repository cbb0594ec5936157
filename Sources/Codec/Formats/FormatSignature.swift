/// Recognizes a format by the first bytes of a file.
struct FormatSignature: Sendable {
  /// Whether these first bytes are a file of the format.
  let matches: @Sendable ([UInt8]) -> Bool
  /// Whether these bytes are too few for a signature but could be the start of one.
  let isBegun: @Sendable ([UInt8]) -> Bool

  /// Matches any of several fixed beginnings.
  /// - Parameter least: with fewer bytes, `isBegun` is false, because they could begin any format.
  private init(_ beginnings: [[UInt8]], least: Int = 1) {
    matches = { start in beginnings.contains(where: start.starts) }
    isBegun = { start in start.count >= least && beginnings.contains { $0.starts(with: start) } }
  }

  private init(
    matches: @escaping @Sendable ([UInt8]) -> Bool, isBegun: @escaping @Sendable ([UInt8]) -> Bool
  ) {
    (self.matches, self.isBegun) = (matches, isBegun)
  }

  private static let jpegStart: [UInt8] = [0xFF, 0xD8, 0xFF]
  private static let riff = Array("RIFF".utf8)
  private static let webpWord = Array("WEBP".utf8)

  /// The fourth byte is the first marker. 0xF7 is JPEG-LS.
  static let jpeg = FormatSignature(
    matches: { $0.count > 3 && $0.starts(with: jpegStart) && $0[3] != 0xF7 },
    isBegun: { jpegStart.starts(with: $0) })

  static let png = FormatSignature([[0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A]])

  static let gif = FormatSignature(["GIF87a", "GIF89a"].map { Array($0.utf8) })

  /// The four bytes between the two words are the file's length.
  static let webp = FormatSignature(
    matches: { $0.starts(with: riff) && $0.dropFirst(8).starts(with: webpWord) },
    isBegun: {
      riff.starts(with: $0.prefix(4)) && $0.count < 12 && webpWord.starts(with: $0.dropFirst(8))
    })

  /// The word follows its box's length, which has 32 bits and is small.
  static let avif = FormatSignature(
    matches: { ISOMediaBrands($0)?.isAVIF == true },
    isBegun: {
      (5..<12).contains($0.count) && $0.starts(with: [0, 0, 0])
        && Array("ftypavi".utf8).starts(with: $0.dropFirst(4))
    })

  /// Like AVIF. A file that could be both is AVIF.
  static let heic = FormatSignature(
    matches: { ISOMediaBrands($0)?.isHEIC == true },
    isBegun: {
      (5..<12).contains($0.count) && $0.starts(with: [0, 0, 0])
        && Array("ftyphe".utf8).starts(with: $0.dropFirst(4))
    })

  /// The number of images is below 256. Other formats begin with a box of 256 bytes, which has letters in this place.
  static let ico = FormatSignature(matches: isIcon, isBegun: { _ in false })

  @Sendable private static func isIcon(_ start: [UInt8]) -> Bool {
    start.count > 5 && start.starts(with: [0, 0, 1, 0]) && start[5] == 0
  }

  /// A bare codestream, or a container that begins with a signature box.
  static let jxl: FormatSignature = {
    let box = FormatSignature(
      [[0, 0, 0, 12] + Array("JXL ".utf8) + [0x0D, 0x0A, 0x87, 0x0A]], least: 5)
    let naked = FormatSignature([[0xFF, 0x0A]])
    return FormatSignature(
      matches: { naked.matches($0) || box.matches($0) },
      isBegun: { naked.isBegun($0) || box.isBegun($0) })
  }()
}
