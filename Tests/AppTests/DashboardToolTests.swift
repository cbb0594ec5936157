import Foundation
import TestSupport
import Testing

@Suite("Many jobs on the dashboard", .browser, .timeLimit(.minutes(15)))
struct DashboardToolTests {
  /// The names of the shown jobs, from top to bottom.
  private static let names = """
    [...cards].sort((a, b) => a.ariaPosInSet - b.ariaPosInSet).map((one) => text(one.querySelector('.name'))).join(' ')
    """

  @Test("rows are ordered by a column, running jobs first, and the address keeps the order")
  func orders() async throws {
    try await withDashboard(["IMAGEFETCH_JOBS_MAX_ATTEMPTS": "1"]) { page in
      page.origin.on("/held.png", .held(Fixtures.png, by: Gate()))
      page.origin.on("/large.jpg", .ok(Fixtures.image("photo.jpg")))
      page.origin.on("/small.png", .ok(Fixtures.smallPNG))
      for name in ["held.png", "large.jpg", "small.png", "none.png"] {
        let id = try await page.service.submit(url: page.origin.url("/" + name))
        if name != "held.png" { _ = try await page.service.finished(id) }
      }
      try await page.sees("\(Self.names) === 'none.png small.png large.jpg held.png'")
      try await page.browser.click("#table")
      try await page.sees("\(Self.names) === 'held.png none.png small.png large.jpg'")
      try await page.browser.click("#columns [data-sort=name]")
      try await page.sees("\(Self.names) === 'held.png large.jpg none.png small.png'")
      try await page.run("document.querySelector('#columns [data-sort=size]').click()")
      try await page.sees("\(Self.names).startsWith('large.jpg small.png')")
      try await page.sees(
        "document.querySelector('#columns [aria-pressed=true]').dataset.sort === 'size'")
      // The reading and tab order is the order on the wall.
      try await page.sees("cards.map((one) => one.ariaPosInSet).join() === '1,2,3,4'")
      try await page.run("location.reload()")
      try await page.sees(
        "location.hash === '#view=table&sort=size' && \(Self.names).startsWith('large.jpg small')")
      try await page.run("cards[0].focus()")
      try await page.browser.press("\u{E015}")
      try await page.sees("document.activeElement === card('small.png')")
    }
  }

  @Test("jobs are selected singly or in a range, and actions apply to them alone")
  func selection() async throws {
    try await withDashboard(["IMAGEFETCH_JOBS_MAX_ATTEMPTS": "1"]) { page in
      for name in ["a", "b", "c", "d"] {
        page.origin.on("/\(name).png", .ok(Fixtures.png))
        let url = page.origin.url("/\(name).png")
        let tags = name == "b" ? ["=1+1", "x,\"y\""] : []
        let id = try await page.service.submit(["url": url, "tags": tags]).json()["id"] as? String
        _ = try await page.service.finished(try #require(id))
      }
      try await page.sees(
        "cards.length === 4 && cards.every((one) => one.dataset.phase === 'success')")
      // Downloads are captured where they begin.
      try await page.run(
        """
        window.saved = [];
        const make = URL.createObjectURL;
        URL.createObjectURL = (blob) => {
          if (!blob.type.startsWith('image/')) blob.text().then((text) => saved.push(text));
          return make(blob);
        };
        """)
      let pick = { (name: String, shift: Bool) in
        """
        card('\(name).png').querySelector('.pick')
          .dispatchEvent(new MouseEvent('click', { bubbles: true, shiftKey: \(shift) }));
        """
      }
      try await page.run(pick("c", false))
      try await page.sees("text($('show-all')) === 'Actions on 1…'")
      try await page.run(pick("a", true))
      try await page.sees("text($('show-all')) === 'Actions on 3…'")
      try await page.run("card('a.png').focus()")
      try await page.browser.press("x")
      try await page.sees("text($('show-all')) === 'Actions on 2…'")
      for format in ["csv", "json"] {
        try await page.browser.click("#show-all")
        try await page.sees("$('all').open && text($('all-title')) === '2 selected jobs'")
        try await page.browser.click("#all [data-export=\(format)]")
      }
      try await page.sees("saved.length === 2")
      let saved = try #require(try await page.run("return saved") as? [String])
      let lines = saved[0].components(separatedBy: "\r\n")
      #expect(lines.count == 4 && lines[3].isEmpty && lines[0].hasPrefix("id,phase,source,name"))
      #expect(lines[1].contains("/c.png") && lines[2].contains("/b.png"))
      // A spreadsheet must not treat foreign text as a formula.
      #expect(lines[2].contains(#","'=1+1 x,""y""","#), "\(lines[2])")
      let jobs = try JSONSerialization.jsonObject(with: Data(saved[1].utf8)) as? [[String: Any]]
      #expect(jobs?.count == 2 && jobs?.allSatisfy { $0["phase"] as? String == "success" } == true)

      try await page.browser.click("#show-all")
      try await page.browser.click("#all [data-all=forget]")
      try await page.browser.click("#confirm-yes")
      try await page.sees("cards.length === 2 && card('a.png') && card('d.png')")
      try await page.sees("text($('show-all')) === 'Actions…' && $('choose-none').hidden")
    }
  }

  @Test("the last 15 minutes are plotted with a scale, and each bar has a description")
  func plots() async throws {
    try await withDashboard(["IMAGEFETCH_JOBS_MAX_ATTEMPTS": "1"]) { page in
      page.origin.on("/a.png", .ok(Fixtures.png))
      for name in ["a.png", "a.png?2", "none.png"] {
        _ = try await page.service.finished(
          page.service.submit(url: page.origin.url("/" + name)))
      }
      try await page.run("$('glance').open = true")
      try await page.sees("text($('throughput-text')).startsWith('2 done, 1 failed')")
      try await page.sees("text($('throughput-time')) === '15 minutes'")
      try await page.sees(
        "text(document.querySelector('.chart .scale.up')).match(/^[12]$/) "
          + "&& text(document.querySelector('.chart .from')) === '15 min ago'")
      // The page adds the jobs that ended since the last step.
      try await eventually {
        let answer = try await page.service.get("/activity").json()
        let sum = { (name: String) in (answer[name] as? [Int] ?? []).reduce(0, +) }
        return sum("succeeded") == 2 && sum("failed") == 1
      }
      // One of the last three bars: a step may have ended between the jobs.
      let tip = try await page.sees(
        """
        (() => {
          const canvas = $('throughput-plot');
          const { right, top, width } = canvas.getBoundingClientRect();
          const tips = [0.5, 1.5, 2.5].map((bar) => {
            const clientX = right - (bar * width) / 60;
            canvas.dispatchEvent(new PointerEvent('pointermove', { clientX, clientY: top + 5, bubbles: true }));
            return text(canvas.parentElement.querySelector('.tip'));
          });
          return tips.find((tip) => / [12] done, [01] failed$/.test(tip));
        })()
        """)
      #expect("\(tip)".contains(#/^\d\d:\d\d:\d\d: /#))
    }
  }

  @Test("finished bars do not change while nothing happens")
  func stillPlot() async throws {
    try await withDashboard { page in
      // A history of 10 and 20 jobs in two steps of every second bar. All of them ended some time ago.
      try await page.run(
        """
        const ask = window.fetch;
        const now = Math.floor(Date.now() / 5000);
        const done = (step) => (step < now - 20 && step > now - 120 ? { 0: 10, 2: 20 }[step % 6] ?? 0 : 0);
        window.polls = [];
        window.fetch = (path, options) => {
          if (path !== 'activity') return ask(path, options);
          const last = Math.floor(Date.now() / 5000) - 1;
          const steps = Array.from({ length: 180 }, (_, index) => last - 179 + index);
          const zero = steps.map(() => 0);
          polls.push($('throughput-text').innerText);
          return Promise.resolve(Response.json({
            interval: 5, end: new Date((last + 1) * 5000).toISOString(), queued: zero, loading: zero,
            succeeded: steps.map(done), failed: zero,
          }));
        };
        $('glance').open = true;
        """.replacing("$('", with: "document.getElementById('"))
      // After three more steps, every way of combining three steps was used.
      try await page.sees("polls.length >= 5 && text($('throughput-text')).includes('peak')")
      let shown = try #require(try await page.run("return polls.slice(1)") as? [String])
      let expected = try #require(shown.first)
      #expect(expected.contains(#/^\d{3} done, 0 failed; peak 2\/s$/#))
      #expect(Set(shown) == [expected])
    }
  }

  @Test("on a phone, rows show a job's source, result and time, and have a menu")
  func phone() async throws {
    try await withDashboard(["IMAGEFETCH_JOBS_MAX_ATTEMPTS": "1"]) { page in
      page.origin.on("/held.png", .held(Fixtures.png, by: Gate()))
      page.origin.on("/a.png", .ok(Fixtures.png))
      for name in ["a.png", "none.png"] {
        _ = try await page.service.finished(page.service.submit(url: page.origin.url("/" + name)))
      }
      _ = try await page.service.submit(url: page.origin.url("/held.png"))
      try await page.browser.emulate(width: 390, height: 844, isDark: false)
      try await page.run("$('table').click()")
      try await page.sees("innerWidth === 390 && $('wall').matches('.rows') && cards.length === 3")
      let line = { (name: String) in "text(card('\(name)').querySelector('.brief'))" }
      let host = page.origin.url("").dropFirst("http://".count)
      try await page.sees("\(line("none.png")) === 'The origin responded with 404. · \(host)'")
      try await page.sees("\(line("a.png")).match(/^PNG, \\d+ × \\d+, .* · \(host)$/)")
      try await page.sees("text(card('a.png').querySelector('.age')).match(/^\\d+ s ago$/)")
      try await page.sees("cards.every((row) => row.scrollWidth <= row.clientWidth)")
      // A row's two lines are fully visible.
      let bottom = { (part: String) in "\(part).getBoundingClientRect().bottom" }
      try await page.sees(
        "cards.every((row) => \(bottom("row.querySelector('.brief')")) <= \(bottom("row")))")
      try await page.click("menu", of: "held.png")
      let buttons = "[...$('menu').querySelectorAll('[data-do]')]"
      let offered = "\(buttons).filter((one) => !one.hidden).map(text).join()"
      try await page.sees("$('menu').open && \(offered) === 'Details,Cancel,Copy id'")
      try await page.run("$('menu').querySelector('[data-do=cancel]').click()")
      try await page.sees("!$('menu').open && is('held.png', 'cancelled')")
      try await page.click("menu", of: "a.png")
      try await page.sees("\(offered) === 'Details,Open image,Copy id,Forget'")
      try await page.run("$('menu').querySelector('[data-do=details]').click()")
      try await page.sees("$('details').open && text($('details-title')) === 'a.png'")
    }
  }

  @Test("with a token an image is downloaded, and no link leads to a 401")
  func tokens() async throws {
    try await withDashboard(Dashboard.withTokens) { page in
      page.origin.on("/a.png", .ok(Fixtures.png))
      try await page.browser.type("root\u{E007}", into: "#token-value")
      let url = ["url": page.origin.url("/a.png")]
      let answer = try await page.service.send(
        "POST", "/jobs",
        headers: ["Authorization": "Bearer web", "Content-Type": "application/json"],
        body: JSONSerialization.data(withJSONObject: url))
      #expect(answer.status == 202)
      try await page.sees("is('a.png', 'success')")
      try await page.sees("text(card('a.png').querySelector('[data-do=open]')) === 'Save'")
      try await page.sees("$('metrics-link').hidden")
      try await page.click("details", of: "a.png")
      try await page.sees(
        "text(document.querySelector('#details [data-do=open]')) === 'Save image'")
    }
  }

  @Test("a retried job lists each failed attempt")
  func tries() async throws {
    try await withDashboard(["IMAGEFETCH_JOBS_MAX_ATTEMPTS": "3"]) { page in
      try await page.sees("$('connection').dataset.state === 'live'")
      page.origin.on(
        "/a.png",
        inOrder: [.status(503), .status(502), .ok(Fixtures.png)])
      let id = try await page.service.submit(url: page.origin.url("/a.png"))
      _ = try await page.service.finished(id)
      try await page.sees("is('a.png', 'success')")
      try await page.click("details", of: "a.png")
      let tries =
        "[...document.querySelectorAll('.tries li')].map((one) => `${one.value} ${text(one)}`)"
      let rows = try #require(try await page.sees("\(tries).length === 2 && \(tries)") as? [String])
      #expect(rows[0].contains(#/^1 .*503/#) && rows[1].contains(#/^2 .*502/#), "\(rows)")
    }
  }

  @Test("the header has the version and links, and jobs start high on a phone's screen")
  func header() async throws {
    try await withDashboard { page in
      page.origin.on("/a.png", .ok(Fixtures.png))
      _ = try await page.service.finished(page.service.submit(url: page.origin.url("/a.png")))
      let version = try await page.service.get("/openapi.json").json()["info"] as? [String: Any]
      try await page.sees(
        "text($('version')).startsWith('\(version?["version"] as? String ?? "none")')")
      for link in ["openapi.json", "metrics"] {
        let path = try await page.run(
          "return document.querySelector('nav a[href=\"\(link)\"]').href")
        #expect(path as? String == page.service.base + "/" + link)
        #expect(try await page.service.get("/" + link).status == 200)
      }
      try await page.browser.emulate(width: 390, height: 844, isDark: false)
      try await page.sees("innerWidth === 390 && card('a.png')")
      try await page.sees("card('a.png').getBoundingClientRect().top < 844 / 2")
    }
  }
}
