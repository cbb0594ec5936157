import Jobs
import Testing

@Suite("A job's id")
struct JobIDTests {
  @Test("an ID is a version 7 UUID with its time, and its text form can be parsed")
  func textForm() throws {
    let id = JobID(at: Timestamp(milliseconds: 0x0193_A0B2_7C1E))
    let text = id.description
    #expect(text.hasPrefix("0193a0b2-7c1e-7"))
    #expect(["8", "9", "a", "b"].contains(String(text.dropFirst(19).first!)))
    #expect(JobID(text) == id)
    #expect(JobID(text.uppercased()) == id)
  }

  @Test(
    "an ID is not parsed from other texts",
    arguments: [
      "", "0193a0b2-7c1e-7d3a-9f52-1f0c5b6a7d8", "0193a0b2-7c1e-7d3a-9f52-1f0c5b6a7d888",
      "0193a0b27c1e-7d3a-9f52-1f0c5b6a7d88-", "0193a0b2-7c1e-7d3a-9f52-1f0c5b6a7d8g",
      "../../etc/passwd", "0193a0b2_7c1e_7d3a_9f52_1f0c5b6a7d88",
    ])
  func malformed(text: String) {
    #expect(JobID(text) == nil)
  }
}
