import Foundation
import Jobs
import Logging
import Synchronization
import Testing

@testable import App

@Suite("A log record")
struct LogTests {
  @Test("a text record is one line with sorted fields")
  func text() {
    let lines = logged(.text) { log in
      log.info("listening", metadata: ["port": "\(8080)", "address": "127.0.0.1"])
      log.warning("")
      log.critical("gone", metadata: ["a": ["b": ["c": "1 2"], "d": ""], "e": ["x", "y z"]])
    }
    #expect(
      lines == [
        "2026-11-21T09:30:00.123Z info  listening address=127.0.0.1 port=8080\n",
        "2026-11-21T09:30:00.123Z warning \n",
        "2026-11-21T09:30:00.123Z critical gone a.b.c=\"1 2\" a.d=\"\" e=[x,\"y z\"]\n",
      ])
  }

  @Test("a JSON record is one object per line, with numbers as numbers")
  func json() throws {
    let lines = logged(.json) { log in
      log.error(
        "bad \"thing\"",
        metadata: [
          "port": .stringConvertible(8080), "open": .stringConvertible(true),
          "share": .stringConvertible(0.5), "nan": .stringConvertible(Double.nan),
          "list": ["a", .stringConvertible(1)], "message": "forged", "time": "forged",
        ])
    }
    #expect(
      lines == [
        #"{"time":"2026-11-21T09:30:00.123Z","level":"error","logger":"test","#
          + #""message":"bad \"thing\"","list":["a",1],"metadata.message":"forged","nan":"nan","#
          + #""open":true,"port":8080,"share":0.5,"metadata.time":"forged"}"# + "\n"
      ])
    let object = try JSONSerialization.jsonObject(with: Data(lines[0].utf8)) as? [String: Any]
    #expect(object?["message"] as? String == "bad \"thing\"")
  }

  @Test(
    "a value cannot forge a record",
    arguments: [
      "\n2026-11-21T09:30:00.124Z info forged", "\r\n", "\u{2028}", "\u{85}", "\u{1B}[2J", "\u{0}",
      "\u{202E}", "\",\"level\":\"info", "\\", "\u{7F}", "a b=c", "\"",
    ])
  func hostile(text: String) throws {
    let hidden: [Unicode.GeneralCategory] = [
      .control, .format, .lineSeparator, .paragraphSeparator,
    ]
    for format in [LogFormat.text, .json] {
      let lines = logged(format) { log in
        log.info("\(text)", metadata: ["\(text)": "\(text)", "list": ["\(text)"]])
      }
      let line = try #require(lines.first)
      #expect(lines.count == 1)
      let body = line.dropLast()
      #expect(line.hasSuffix("\n"))
      #expect(!body.unicodeScalars.contains { hidden.contains($0.properties.generalCategory) })
      guard format == .json else { continue }
      let parsed = try JSONSerialization.jsonObject(with: Data(line.utf8))
      let object = try #require(parsed as? [String: Any])
      #expect(object["message"] as? String == text)
      #expect(object[text] as? String == text)
      #expect(object["level"] as? String == "info")
    }
  }

  @Test("a value with a blank or an equals sign is quoted")
  func quoting() {
    let lines = logged(.text) { log in log.info("m", metadata: ["url": "http://x/?a=b c"]) }
    #expect(lines[0].hasSuffix(" m url=\"http://x/?a=b c\"\n"))
  }

  @Test("a record's length is limited")
  func bounded() {
    let long = String(repeating: "ä", count: 1 << 20)
    var metadata: Logger.Metadata = [:]
    for index in 0..<1000 { metadata["key\(index)"] = .string(long) }
    for format in [LogFormat.text, .json] {
      let lines = logged(format) { log in log.info(.init(stringLiteral: long), metadata: metadata) }
      #expect(lines[0].utf8.count < 400_000)
    }
  }

  @Test("a record has the logger's fields, overridden by nearer ones, and obeys the level")
  func fields() {
    let lines = logged(.text) { log in
      var log = log
      log[metadataKey: "a"] = "1"
      log[metadataKey: "b"] = "1"
      log.info("m", metadata: ["b": "2"])
      log.debug("unheard")
    }
    #expect(lines.count == 1)
    #expect(lines[0].hasSuffix(" m a=1 b=2\n"))
  }

  private func logged(_ format: LogFormat, _ body: (Logger) -> Void) -> [String] {
    let lines = Lines()
    let log = Logger(label: "test") { label in
      LineLogHandler(
        label: label, level: .info, format: format,
        now: { Timestamp(milliseconds: 1_795_253_400_123) },
        write: { line in lines.all.withLock { $0.append(line) } })
    }
    body(log)
    return lines.all.withLock { $0 }
  }
}

private final class Lines: Sendable {
  let all = Mutex<[String]>([])
}
