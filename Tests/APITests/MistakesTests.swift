import FoundationEssentials
import HTTPTypes
import Testing

@testable import API

@Suite("The mistakes of a request")
struct MistakesTests {
  private static func decoder() -> SubmissionDecoder {
    SubmissionDecoder(
      limits: APIConfiguration.Limits(), hasLocalRoot: false, formats: [],
      allowsPlainWebhooks: false,
      destinations: [], savesData: false)
  }

  private static func job(_ mistakes: Int) -> JSONValue {
    let unknown = (0..<mistakes).map { JSONValue.Member(name: "x\($0)", value: .null) }
    return .object([.init(name: "url", value: .string("http://a/"))] + unknown)
  }

  @Test("decoding an array stops at the maximum number of mistakes in a response")
  func stops() {
    var decoder = Self.decoder()
    let jobs = decoder.jobs(from: .array(Array(repeating: Self.job(1), count: 1000)))
    #expect(decoder.mistakes.errors.count == RequestErrors.mostReported)
    #expect(
      jobs.count == RequestErrors.mostReported,
      "each with one mistake; the other 900 are not decoded")
    var longest = Self.decoder()
    _ = longest.jobs(from: .array([Self.job(60), Self.job(60), Self.job(60)]))
    #expect(longest.mistakes.errors.last?.place == .pointer("/1/x39"))
  }

  @Test("the detail counts the mistakes, exactly while there are fewer than the maximum")
  func counted() async {
    func answer(_ jobs: Int) async -> Answer {
      let job = #"{"url":"http://a/","x":1}"#
      return await Client().post(
        "[" + Array(repeating: job, count: jobs).joined(separator: ",") + "]")
    }
    let few = await answer(99)
    #expect(few.mistakes.count == 99 && few.detail?.hasSuffix(" (and 98 more)") == true)
    let many = await answer(1000)
    #expect(many.mistakes.count == 100 && many.detail?.hasSuffix(" (and at least 99 more)") == true)
  }

  @Test("decoding a line stops at its first mistake")
  func ofLine() {
    var mistakes = RequestErrors(most: 1)
    #expect(!mistakes.isFull)
    mistakes.add(.pointer("/a"), .invalidOption, "One.")
    mistakes.add(.pointer("/b"), .invalidOption, "Two.")
    #expect(mistakes.isFull && mistakes.errors.map(\.detail) == ["One."])
    #expect(mistakes.problem?.detail == "One.")
  }

  @Test("all mistakes in a batch's defaults are reported")
  func ofDefaults() async {
    let list = #"{"defaults":{"x":1,"y":2,"z":3},"jobs":["http://a/"]}"#
    let answer = await Client().post(list, to: "/batches")
    #expect(answer.mistakes.count == 3, "\(answer.text)")
  }

  @Test("a member that belongs to a variant gets a hint")
  func ofVariants() async {
    let answer = await Client().post(#"{"url":"http://a/","width":200}"#)
    #expect(answer.mistakes == ["/width invalid_option"])
    let detail =
      "Put width into an element of variants, or into the query of GET /jobs/{id}/image."
    #expect(answer.detail?.hasSuffix(detail) == true, "\(answer.text)")
  }
}

@Suite("A byte order mark")
struct ByteOrderMarkTests {
  private static let mark: [UInt8] = [0xEF, 0xBB, 0xBF]

  private static func text(of pieces: [[UInt8]]) -> [UInt8] {
    var mark = ByteOrderMark()
    return pieces.flatMap { mark.removed(from: $0) } + mark.rest()
  }

  @Test("a byte order mark is removed once, at the beginning, in pieces of any size")
  func removed() {
    let text = Self.mark + Array("url".utf8)
    for first in 0...text.count {
      for second in first...text.count {
        let pieces = [
          Array(text[..<first]), Array(text[first..<second]), Array(text[second...]),
        ]
        #expect(Self.text(of: pieces) == Array("url".utf8), "\(pieces)")
      }
    }
    #expect(Self.text(of: [Self.mark + Self.mark]) == Self.mark)
    #expect(Self.text(of: [[0x61] + Self.mark]) == [0x61] + Self.mark)
  }

  @Test("an incomplete byte order mark is text")
  func cut() {
    for text in [[0xEF], [0xEF, 0xBB], [0xEF, 0xBB, 0x61], [0xEF, 0xEF, 0xBB, 0xBF]] as [[UInt8]] {
      #expect(Self.text(of: [text]) == text)
      #expect(Self.text(of: text.map { [$0] }) == text)
    }
  }

  @Test("a byte order mark before a job, an array or options is skipped")
  func bodies() async {
    let client = Client()
    #expect(await client.post("\u{FEFF}" + #"{"url":"http://a/"}"#).status == 202)
    let long = String(repeating: " ", count: 2 << 20)
    // Content above the limit of an object must be recognized as an array behind the mark.
    #expect(await client.post("\u{FEFF}[" + long + #"{"url":"http://a/"}]"#).status == 202)
    #expect(await client.post("\u{FEFF}\u{FEFF}{}").code == "malformed_json")
  }
}
