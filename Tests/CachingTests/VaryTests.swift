import Caching
import Testing

@Suite("Vary")
struct VaryTests {
  @Test(
    "a response matches a request with the same values of the named fields",
    arguments: [
      (["Foo: 1"], true), (["foo: 1", "Other: 3"], true), (["Foo: 2"], false), ([], false),
      (["Foo: 1", "Foo: 1"], false), (["Foo:"], false),
    ])
  func one(request: [String], matches: Bool) {
    let stored = response(["Vary: Foo"], to: ["Foo: 1", "Other: 2"])
    #expect(stored.matches(fields(request)) == matches)
  }

  @Test(
    "all named fields are compared, and a field that both requests lack is equal",
    arguments: [
      (["Foo: 1", "Baz: 789"], true), (["Baz: 789", "Foo: 1"], true),
      (["Foo: 1", "Baz: 789", "Bar: x"], false), (["Foo: 1"], false), ([], false),
    ])
  func several(request: [String], matches: Bool) {
    let stored = response(["Vary: Foo, Bar", "vary: baz"], to: ["Foo: 1", "Baz: 789"])
    #expect(stored.matches(fields(request)) == matches)
    #expect(stored.selecting.map(\.name) == ["bar", "baz", "foo"])
    #expect(stored.selecting.map(\.value) == [nil, "789", "1"])
  }

  @Test("a field that the stored request lacked must be absent")
  func lacking() {
    let stored = response(["Vary: Foo"])
    #expect(stored.matches([]))
    #expect(!stored.matches(fields(["Foo: 1"])))
    #expect(!stored.matches(fields(["Foo:"])))
  }

  @Test(
    "a response with a star matches no request",
    arguments: [
      ["Vary: *"], ["Vary: *, *"], ["Vary: *", "Vary: *"], ["Vary: , *"], ["Vary:", "Vary: *"],
      ["Vary: *, Foo"], ["Vary: Foo, *"], ["Vary: Foo", "Vary:\t* "],
    ])
  func star(lines: [String]) {
    let stored = response(lines, to: ["Foo: 1"])
    #expect(!stored.matches(fields(["Foo: 1"])))
    #expect(stored.selector == "*")
    #expect(Selection.newest(of: [stored]) { $0.matches(fields(["Foo: 1"])) } == nil)
  }

  @Test(
    "equivalent values match",
    arguments: [
      ("Foo", ["Foo: 1, 2"], ["Foo: 1", "Foo: 2"]), ("Foo", ["Foo: 1,2"], ["Foo:  1, 2 "]),
      ("Accept-Language", ["Accept-Language: en, de"], ["Accept-Language: de, en"]),
      ("Accept-Language", ["Accept-Language: en, de"], ["Accept-Language: eN, De"]),
      ("Accept-Language", ["Accept-Language: en, de"], ["Accept-Language:  en ,   de"]),
      ("Accept-Language", ["Accept-Language: en; q=1"], ["Accept-Language: en;q=1"]),
      ("Accept-Encoding", ["Accept-Encoding: gzip, br"], ["Accept-Encoding: BR,gzip"]),
    ])
  func normalized(name: String, first: [String], second: [String]) {
    #expect(response(["Vary: \(name)"], to: first).matches(fields(second)))
    #expect(response(["Vary: \(name)"], to: second).matches(fields(first)))
  }

  @Test(
    "values that may differ in meaning do not match",
    arguments: [
      (["Foo: 1, 2"], ["Foo: 2, 1"]), (["Foo: a"], ["Foo: A"]),
      (["Foo: \"a,b\""], ["Foo: \"a, b\""]),
    ])
  func different(first: [String], second: [String]) {
    #expect(!response(["Vary: Foo"], to: first).matches(fields(second)))
  }

  @Test("the selector differs between variants, and is equal for a replacement")
  func selector() {
    func selector(_ vary: String, _ request: [String]) -> String {
      response(["Vary: \(vary)"], to: request).selector
    }
    #expect(response([]).selector == "")
    #expect(selector("Foo", ["Foo: 1"]) != selector("Foo", ["Foo: 2"]))
    #expect(selector("Foo", []) != selector("Foo", ["Foo:"]))
    #expect(selector("Foo, Bar", ["Foo: 1"]) == selector("bar,foo, FOO", ["foo: 1"]))
    #expect(selector("Foo, Bar", ["Foo: 1"]) != selector("Foo", ["Foo: 1"]))
  }

  @Test("the newest of several matching responses by Date is used, then the last received")
  func newest() {
    let old = response([date("Date", -20), "Vary: Foo"], to: ["Foo: 1"])
    let new = response([date("Date", -10)])
    var newer = response([date("Date", -10)])
    newer.responseTime += 1
    let other = response(["Vary: Foo"], to: ["Foo: 2"])
    let request = fields(["Foo: 1"])
    #expect(Selection.newest(of: []) { $0.matches(request) } == nil)
    #expect(Selection.newest(of: [other]) { $0.matches(request) } == nil)
    #expect(Selection.newest(of: [other, old]) { $0.matches(request) } == 1)
    #expect(Selection.newest(of: [new, old, other]) { $0.matches(request) } == 0)
    #expect(Selection.newest(of: [newer, new]) { $0.matches(request) } == 0)
  }
}
