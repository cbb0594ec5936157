import Foundation
import Testing

@testable import Client

@Suite("Reading a list of URLs")
struct LineReaderTests {
  @Test("blank lines are skipped, and all kinds of line ends are accepted")
  func lines() throws {
    let lines = try read(Array("http://a\n\n  \r\nhttp://b\r\n \thttp://c \nhttp://d".utf8))
    #expect(lines == ["http://a", "http://b", "http://c", "http://d"].map { .text($0) })
    #expect(try read([]).isEmpty)
    #expect(try read(Array("\n".utf8)).isEmpty)
  }

  @Test("a byte order mark before the list is skipped")
  func mark() throws {
    let mark: [UInt8] = [0xEF, 0xBB, 0xBF]
    #expect(
      try read(mark + Array("http://a\r\nhttp://b".utf8)) == [.text("http://a"), .text("http://b")])
    #expect(try read(mark + Array("\n".utf8) + mark) == [.text("\u{FEFF}")])
    #expect(try read(mark).isEmpty)
  }

  @Test("a line that is too long is reported and does not end the list")
  func tooLong() throws {
    let fits = String(repeating: "a", count: URLLineReader.maxLine)
    let text = "\(fits)\n\(fits)b\n\(String(repeating: "c", count: 300_000))\nhttp://d\n"
    let lines = try read(Array(text.utf8))
    #expect(lines.count == 4 && lines.first == .text(fits) && lines.last == .text("http://d"))
    for line in lines[1...2] {
      guard case .unusable(let beginning, let reason) = line else {
        Issue.record("\(line)")
        continue
      }
      #expect(beginning.utf8.count <= 120 && reason.contains("8192"))
    }
  }

  @Test("bytes that are not UTF-8 are reported")
  func noText() throws {
    let lines = try read([0x68, 0xFF, 0x0A, 0x69])
    #expect(lines.count == 2 && lines.last == .text("i"))
    guard case .unusable = lines[0] else {
      Issue.record("\(lines)")
      return
    }
  }

  @Test("a line is returned before the next one has arrived")
  func lazy() throws {
    let pipe = Pipe()
    let reader = URLLineReader(pipe.fileHandleForReading.fileDescriptor)
    for name in ["http://a", "http://b"] {
      try pipe.fileHandleForWriting.write(contentsOf: Data("\(name)\n".utf8))
      #expect(try reader.next() == .text(name))
    }
    try pipe.fileHandleForWriting.close()
    #expect(try reader.next() == nil)
  }

  private func read(_ bytes: [UInt8]) throws -> [URLLineReader.Line] {
    let path = NSTemporaryDirectory() + "imagefetch-list-" + UUID().uuidString
    try Data(bytes).write(to: URL(filePath: path))
    defer { try? FileManager.default.removeItem(atPath: path) }
    let file = try #require(FileHandle(forReadingAtPath: path))
    let reader = URLLineReader(file.fileDescriptor)
    var lines: [URLLineReader.Line] = []
    while let line = try reader.next() { lines.append(line) }
    return lines
  }
}
