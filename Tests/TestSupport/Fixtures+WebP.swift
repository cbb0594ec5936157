/// A WebP file as chunks that can be changed (RFC 9649, section 2.3).
package struct WebPFixture {
  /// One chunk, without its padding.
  package struct Chunk: Sendable {
    /// Four characters.
    package var tag: String
    /// The payload, which the chunk's length counts.
    package var content: [UInt8]

    /// A chunk.
    package init(tag: String, content: [UInt8]) {
      self.tag = tag
      self.content = content
    }
  }

  /// The chunks in the order of the file.
  package var chunks: [Chunk] = []

  /// Creates a file from chunks.
  package init(chunks: [Chunk]) { self.chunks = chunks }

  /// A VP8X chunk that declares an animation. The frames must follow.
  package static func animation(width: Int, height: Int) -> WebPFixture {
    WebPFixture(chunks: [.canvas(width: width, height: height, flags: 0x02)])
  }

  /// A lossless image of one color. It has about a dozen bytes whatever its dimensions, because no pixel needs a bit
  /// (RFC 9649, 3.7.2.1.1).
  package static func flat(width: Int, height: Int, argb: UInt32) -> Chunk {
    var bits = Bits()
    bits.append(0x2F, width: 8)
    bits.append(UInt32(width - 1), width: 14)
    bits.append(UInt32(height - 1), width: 14)
    bits.append(argb >> 24 == 255 ? 0 : 1, width: 1)
    // The version, and no transform, no color cache, only one group of codes.
    bits.append(0, width: 3 + 1 + 1 + 1)
    // Green, red, blue, alpha, distance: each code has one symbol.
    for symbol in [argb >> 8 & 255, argb >> 16 & 255, argb & 255, argb >> 24, 0] {
      bits.append(1, width: 1)
      bits.append(0, width: 1)
      bits.append(1, width: 1)
      bits.append(symbol, width: 8)
    }
    return Chunk(tag: "VP8L", content: bits.bytes)
  }

  /// Writes bits, lowest first.
  private struct Bits {
    var bytes: [UInt8] = []
    var count = 0

    mutating func append(_ value: UInt32, width: Int) {
      for bit in 0..<width {
        if count % 8 == 0 { bytes.append(0) }
        if value >> UInt32(bit) & 1 == 1 { bytes[count / 8] |= 1 << UInt8(count % 8) }
        count += 1
      }
    }
  }

  /// - Parameter file: a valid file.
  package init(_ file: [UInt8]) {
    var offset = 12
    while offset + 8 <= file.count {
      let size = file[offset + 4..<offset + 8].reversed().reduce(0) { $0 << 8 | Int($1) }
      let start = offset + 8
      chunks.append(
        Chunk(
          tag: String(decoding: file[offset..<offset + 4], as: UTF8.self),
          content: Array(file[start..<start + size])))
      offset = start + size + size % 2
    }
  }

  /// The file with correct lengths.
  package var bytes: [UInt8] {
    let body = chunks.flatMap(\.bytes)
    return Array("RIFF".utf8) + Self.length(body.count + 4) + Array("WEBP".utf8) + body
  }

  fileprivate static func length(_ count: Int) -> [UInt8] {
    [0, 8, 16, 24].map { UInt8(truncatingIfNeeded: count >> $0) }
  }
}

extension WebPFixture.Chunk {
  /// The chunk with its header and padding.
  package var bytes: [UInt8] {
    Array(tag.utf8) + WebPFixture.length(content.count) + content
      + [UInt8](repeating: 0, count: content.count % 2)
  }

  /// VP8X.
  package static func canvas(width: Int, height: Int, flags: UInt8) -> Self {
    Self(tag: "VP8X", content: [flags, 0, 0, 0] + three(width - 1) + three(height - 1))
  }

  /// An ANMF chunk that contains these chunks.
  package static func frame(_ chunks: Self..., width: Int, height: Int) -> Self {
    let head = three(0) + three(0) + three(width - 1) + three(height - 1) + three(100) + [0]
    return Self(tag: "ANMF", content: head + chunks.flatMap(\.bytes))
  }

  private static func three(_ value: Int) -> [UInt8] { Array(WebPFixture.length(value).prefix(3)) }
}
