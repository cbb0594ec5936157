/// A WebP file as chunks, to be changed (RFC 9649, section 2.3).
public struct WebPFixture {
  /// One chunk, without its padding.
  public struct Chunk: Sendable {
    /// Four characters.
    public var tag: String
    /// What its length counts.
    public var content: [UInt8]

    /// A chunk.
    public init(tag: String, content: [UInt8]) {
      self.tag = tag
      self.content = content
    }
  }

  /// In the file's order.
  public var chunks: [Chunk] = []

  /// - Parameter file: a sound one.
  public init(_ file: [UInt8]) {
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

  /// The file with lengths that fit.
  public var bytes: [UInt8] {
    let body = chunks.flatMap { chunk in
      Array(chunk.tag.utf8) + Self.length(chunk.content.count) + chunk.content
        + [UInt8](repeating: 0, count: chunk.content.count % 2)
    }
    return Array("RIFF".utf8) + Self.length(body.count + 4) + Array("WEBP".utf8) + body
  }

  private static func length(_ count: Int) -> [UInt8] {
    [0, 8, 16, 24].map { UInt8(truncatingIfNeeded: count >> $0) }
  }
}
