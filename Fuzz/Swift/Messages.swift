@testable import Isolation

/// What a decoder that was taken over may answer.
func fuzzReply(_ bytes: [UInt8]) {
  var reader = MessageReader(bytes)
  guard let reply = try? DecoderReply(&reader) else { return }
  // What was believed is what we would say.
  var again = MessageReader(reply.message(number: 7))
  guard (try? again.integer()) == 7, let same = try? DecoderReply(&again) else {
    fatalError("not held: a reply that can be told again")
  }
  expect(same.message(number: 7) == reply.message(number: 7), "the same reply")
}

/// What it is asked.
func fuzzRequest(_ bytes: [UInt8]) {
  var reader = MessageReader(bytes)
  guard let request = try? DecoderRequest(&reader) else { return }
  var again = MessageReader(request.message(number: 7))
  guard (try? again.integer()) == 7, let same = try? DecoderRequest(&again) else {
    fatalError("not held: a request that can be told again")
  }
  expect(same.message(number: 7) == request.message(number: 7), "the same request")
}
