import HTTPTypes
import Jobs
import Testing

@testable import API

@Suite("Rules of the API")
struct RuleTests {
  @Test("the rate limiter's memory is limited, and an active client is not evicted")
  func limiterIsBounded() {
    let (limiter, limit) = (
      RateLimiter(capacity: 10), RateLimit(requestsPerSecond: 0.001, burst: 1)
    )
    let now = ContinuousClock.now
    #expect(limiter.consume(.owner(Owner("a")), limit, at: now).wait == nil)
    for index in 0..<1000 {
      _ = limiter.consume(.address("\(index)"), limit, at: now)
      #expect(limiter.consume(.owner(Owner("a")), limit, at: now).wait != nil)
    }
    #expect(limiter.count <= 21)
  }

  @Test("strings are escaped as JSON requires")
  func writesStrings() {
    var writer = JSONWriter()
    writer.string("a\"\\\u{0}\n\u{7F}ü/")
    #expect(String(decoding: writer.bytes, as: UTF8.self) == #""a\"\\\u0000\u000a\u007fü/""#)
  }

  @Test("the JSON parser reads escapes")
  func readsEscapes() throws {
    let text =
      #" { "a" : [ "\u00e9\ud83d\ude00\n\"\\\/\b\f\r\t" , -0.5e+2, true,false , null , {} ] } "#
    let value = try JSONParser.parse(Array(text.utf8), maxValues: 100)
    let string = JSONValue.string("é😀\n\"\\/\u{8}\u{C}\r\t")
    let elements: [JSONValue] = [
      string, .number("-0.5e+2"), .bool(true), .bool(false), .null, .object([]),
    ]
    #expect(value == .object([.init(name: "a", value: .array(elements))]))
  }

  @Test("an error in JSON has line and column")
  func locates() {
    #expect(throws: JSONError.malformed(reason: "',' or '}' is expected", line: 3, column: 2)) {
      try JSONParser.parse(Array("{\n\"a\":1\n x}".utf8), maxValues: 100)
    }
    #expect(throws: JSONError.malformed(reason: "this string is not UTF-8", line: 1, column: 3)) {
      try JSONParser.parse([0x5B, 0x22, 0xFF, 0x22, 0x5D], maxValues: 100)
    }
  }

  @Test(
    "a JSON number is an integer if it is one without rounding",
    arguments: [
      ("5", 5), ("5.0", 5), ("5e2", 500), ("9223372036854775807", .max), ("-0", 0), ("0.5", nil),
      ("1e16", nil), ("9223372036854775808", nil), ("1e400", nil), ("1e-400", 0),
    ] as [(String, Int?)])
  func integers(text: String, value: Int?) { #expect(JSONValue.number(text).int == value) }

  @Test("every truncated JSON text is refused without a crash")
  func survivesCuts() {
    let text = Array(#"{"a":[1.5e3,"x\u00e9\ud83d\ude00",true,null],"b":{"c":"ü"}}"#.utf8)
    for end in 0..<text.count {
      #expect(throws: JSONError.self) { try JSONParser.parse(Array(text[..<end]), maxValues: 50) }
    }
    for place in text.indices {
      var other = text
      for byte in [0, 0x22, 0x5C, 0x7B, 0xC3, 0xFF] as [UInt8] {
        other[place] = byte
        _ = try? JSONParser.parse(other, maxValues: 50)
      }
    }
  }
}
