// Puts a text field and menus above the table of ids. A menu has the values of a column.
const MENUS = ["family", "actions", "observations", "engine"];

document$.subscribe(() => {
  for (const part of document.querySelectorAll(".filtered:not(:has(.filters))")) {
    const rows = [...part.querySelectorAll("tbody tr")];
    const names = [...part.querySelectorAll("thead th")].map((cell) => cell.textContent.trim());
    const text = (row, column) => row.cells[column].textContent.trim();

    const filters = document.createElement("div");
    filters.className = "filters";
    const field = document.createElement("input");
    field.type = "search";
    field.placeholder = "part of an id";
    field.ariaLabel = "Part of an id";
    const count = document.createElement("span");
    count.setAttribute("role", "status");

    const menus = MENUS.map((name) => {
      const column = names.indexOf(name);
      const menu = document.createElement("select");
      menu.ariaLabel = name;
      menu.add(new Option(`any ${name}`, ""));
      for (const value of [...new Set(rows.map((row) => text(row, column)))].sort()) {
        menu.add(new Option(value));
      }
      return [menu, column];
    });

    const update = () => {
      const wanted = field.value.toLowerCase();
      for (const row of rows) {
        row.hidden =
          !text(row, 0).toLowerCase().includes(wanted) ||
          menus.some(([menu, column]) => menu.value && menu.value !== text(row, column));
      }
      count.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length} ids`;
    };

    filters.append(field, ...menus.map(([menu]) => menu), count);
    filters.addEventListener("input", update);
    part.prepend(filters);
    update();
  }
});
