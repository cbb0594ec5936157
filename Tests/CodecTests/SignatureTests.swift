import Codec
import Jobs
import TestSupport
import Testing

@Suite("A file's signature")
struct SignatureTests {
  static let others: [(name: String?, start: [UInt8])] = [
    ("WAV", Array("RIFF\u{1}\u{2}\u{3}\u{4}WAVEfmt ".utf8)),
    ("HEIF", [0, 0, 0, 20] + Array("ftypmif1\0\0\0\0mif1".utf8)),
    ("MP4", [0, 0, 0, 24] + Array("ftypisom\0\0\0\0isomiso2".utf8)),
    ("MP4", [0, 0, 0, 0] + Array("ftypisom\0\0\0\0is".utf8)),
    ("BMP", Array("BM\u{10}\0\0\0".utf8) + [0, 0, 0, 0, 54, 0, 0, 0, 40, 0, 0, 0]),
    ("TIFF", [0x49, 0x49, 43, 0, 8, 0, 0, 0]),
    ("TIFF", [0x49, 0x49, 42, 0, 8, 0, 0, 0]), ("TIFF", [0x4D, 0x4D, 0, 42, 0, 0, 0, 8]),
    ("TIFF", [0x4D, 0x4D, 0, 43, 0, 8, 0, 0]),
    ("SVG", Array("<?xml version=\"1.0\"?>\n<!-- drawn -->\n<svg xmlns=\"\">".utf8)),
    ("SVG", Array("\u{FEFF}  <svg>".utf8)), ("HTML", Array("<!DOCTYPE html><html>".utf8)),
    ("HTML", Array("\n\n<HTML lang=en>".utf8)), ("XML", Array("<?xml version=\"1.0\"?><a/>".utf8)),
    ("JPEG-LS", [0xFF, 0xD8, 0xFF, 0xF7, 0]),
    ("JPEG 2000", [0, 0, 0, 12] + Array("jP  \r\n".utf8) + [0x87, 0x0A]),
    ("PSD", Array("8BPS\0\u{1}".utf8)), ("PDF", Array("%PDF-1.7".utf8)),
    ("ZIP", [0x50, 0x4B, 3, 4]),
    ("gzip", [0x1F, 0x8B, 8]), ("JSON", Array("{\"error\": 404}".utf8)),
    (nil, Array("Not found".utf8)), (nil, [0]), (nil, []), (nil, Array(repeating: 0, count: 5000)),
    (nil, [0xFF, 0xD9]), (nil, [0x89, 0x50, 0x4E, 0x48]),
  ]

  @Test(
    "a file of an unsupported format is refused with the format's name", arguments: others.indices)
  func named(index: Int) {
    let (name, start) = Self.others[index]
    for size in [1, 5, .max] {
      #expect(Decoding(start, pieces: size).error == .unsupportedFormat(name: name))
      // A file longer than the inspected bytes.
      let long = start + [UInt8](repeating: 0x20, count: name == nil ? 0 : 300)
      #expect(Decoding(long, pieces: size).error == .unsupportedFormat(name: name))
    }
  }

  @Test("AVIF is recognized by its major or a compatible brand")
  func brands() {
    for text in ["avif\0\0\0\0mif1miaf", "avis\0\0\0\0msf1miaf", "mif1\0\0\0\0mif1avif"] {
      for size in [1, .max] {
        // The error shows that it was recognized as AVIF: its boxes are missing.
        let start = [0, 0, 0, 24] + Array("ftyp".utf8) + Array(text.utf8)
        #expect(Decoding(start, pieces: size).error == .cutShort, "\(text)")
      }
    }
  }

  @Test("only the first bytes are searched for a brand, however long the box is")
  func length() {
    var file = [0, 0, 1, 0] + Array("ftypmif1".utf8) + [UInt8](repeating: 0, count: 1000)
    file.replaceSubrange(252..<256, with: "avif".utf8)
    file[2] = 4
    #expect(ImageFormat.avif.begins(file))
    file.insert(contentsOf: [0, 0, 0, 0], at: 12)
    #expect(!ImageFormat.avif.begins(file))
    #expect(Decoding(file).error == .unsupportedFormat(name: "HEIF"))
  }

  @Test("a file that ends within a supported signature is cut short")
  func cut() {
    for name in ["small.webp", "small.gif"] {
      for count in 1...12 {
        #expect(Decoding(Array(Fixtures.image(name).prefix(count))).error == .cutShort)
      }
    }
    for count in 1...3 {
      #expect(Decoding(Array(Fixtures.smallJPEG.prefix(count))).error == .cutShort)
    }
    for count in 1..<8 {
      #expect(Decoding(Array(Fixtures.smallPNG.prefix(count))).error == .cutShort)
    }
  }

  @Test("a file of a disabled format is refused by name")
  func notLetIn() {
    let onlyPNG = Decoding(Fixtures.smallJPEG, limits: DecodeLimits(formats: [.png]))
    #expect(onlyPNG.error == .unsupportedFormat(name: "JPEG"))
    let onlyJPEG = Decoding(Fixtures.smallPNG, limits: DecodeLimits(formats: [.jpeg]))
    #expect(onlyJPEG.error == .unsupportedFormat(name: "PNG"))
    for (file, name) in [
      ("small.webp", "WebP"), ("small.gif", "GIF"), ("small.avif", "AVIF"),
      ("small.jxl", "JPEG XL"), ("boxed.jxl", "JPEG XL"),
    ] {
      let decoding = Decoding(Fixtures.image(file), limits: DecodeLimits(formats: [.jpeg, .png]))
      #expect(decoding.error == .unsupportedFormat(name: name))
    }
  }
}
