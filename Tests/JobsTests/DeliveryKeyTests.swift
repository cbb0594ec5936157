import Jobs
import Testing

@Suite("A key at a destination")
struct DeliveryKeyTests {
  private func filled(
    _ template: String, _ values: [DeliveryKey.Placeholder: String] = [:]
  ) throws -> String? {
    try #require(DeliveryKey(template)).filled { values[$0] }
  }

  @Test("a key replaces placeholders by their values, and unknown values by _")
  func filled() throws {
    #expect(
      try filled("a/{tag}/{sha256}.{ext}", [.tag: "cats", .sha256: "ff", .ext: "png"])
        == "a/cats/ff.png")
    #expect(try filled("{tag}/{line}{host}") == "_/__")
    #expect(try filled("plain") == "plain")
    #expect(DeliveryKey(forVariant: false).template == "{id}.{ext}")
    #expect(DeliveryKey(forVariant: true).template == "{id}-{name}.{ext}")
  }

  @Test("{line} is the line number of a batch's job, and _ for other jobs")
  func line() throws {
    let key = try #require(DeliveryKey("list/{line}.{ext}"))
    let digest = try #require(ImageDigest(bytes: [UInt8](repeating: 0, count: 32)))
    func filled(_ place: BatchPosition?) -> String? {
      let job = Job(
        id: JobID(at: Timestamp(milliseconds: 1)), owner: .anonymous,
        submission: Submission(source: .local("x.png")), priority: .normal, tags: [],
        createdAt: Timestamp(milliseconds: 1), batch: place)
      return job.key(key, of: digest, ending: "png", variant: nil)
    }
    #expect(
      filled(BatchPosition(id: JobID(at: Timestamp(milliseconds: 0)), line: 7)) == "list/7.png")
    #expect(filled(nil) == "list/_.png")
  }

  @Test(
    "a key never leaves its prefix, whatever the values are",
    arguments: [
      ("{tag}/x", "..", "_/x"), ("{tag}/x", "../..", ".._../x"),
      ("{tag}", "/etc/passwd", "_etc_passwd"),
      (".{tag}/x", ".", "_/x"), ("a/.{tag}", "", "a/._"), ("{tag}x", "\\..\\", "_.._x"),
      ("a{tag}b", "\u{0}\n\u{85}", "a___b"), ("{tag}", ".", "_"),
      ("{tag}", "%2e%2e%2f", "%2e%2e%2f"), ("{tag}/\u{301}z", "..", "_/\u{301}z"),
    ])
  func tame(template: String, tag: String, key: String) throws {
    #expect(try filled(template, [.tag: tag]) == key)
  }

  @Test(
    "a template is refused if it could leave the prefix or has unknown placeholders",
    arguments: [
      "", "/a", "a/", "a//b", ".", "..", "a/../b", "./a", "a\\b", "a\nb", "{", "}", "a}b", "{a}",
      "{ID}",
      "{id", "{{id}}", "{}", "../\u{301}x", "a//\u{301}x", String(repeating: "a", count: 1_025),
    ])
  func refused(template: String) {
    #expect(DeliveryKey(template) == nil)
  }

  @Test("a key that would be too long is nil")
  func long() throws {
    #expect(try filled("{tag}", [.tag: String(repeating: "a", count: 1_025)]) == nil)
    #expect(try filled("{tag}", [.tag: String(repeating: "ü", count: 512)])?.utf8.count == 1_024)
  }
}
